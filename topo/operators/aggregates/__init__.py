"""Aggregates: what is kept of many values.

`combiners` are the aggregates themselves, `accumulators` several of them over the same tuples,
`inputs` where their values are found, and `blame` the words for a value that one could not take.
Rows of a table come and go: `retractable` is the contract of what takes values away again, `exact`
are the sums that lose nothing by it, `bags` what has to know all values.
"""
