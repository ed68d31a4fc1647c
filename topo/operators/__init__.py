"""What operators in event time have in common, below windows, joins and tables.

`aggregates` are what is kept of many values, `inputs` what a bolt reads and by which key, and
`selection` what a result has of two rows. `time` is what an operator goes by, event time or the
clock, `queue` has the rows that wait for it, and `results` gathers what is emitted. `codegen` makes
functions of text for all of them.
"""
