"""Joins of streams: by interval, by window, in groups, and Storm's JoinBolt.

`inputs` says what a join reads and checks that equal keys meet in one task, `shapes` makes result
rows. `rows` and `windows` hold rows until the watermark has passed what they could match;
`interval`, `windowed` and `cogroup` are the bolts over them, by the contract of `topo.timed`.
`join_bolt` joins what a window of a `WindowedBolt` holds.
"""
