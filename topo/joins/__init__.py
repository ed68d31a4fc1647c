"""Joins of streams: by interval, by window, in groups, and Storm's JoinBolt.

`rows` and `session_rows` hold rows until the watermark has passed what they could match;
`interval`, `window_join` and `cogroup` are the bolts over them, by the contract of `topo.timed`.
`join_bolt` joins what a window of a `WindowedBolt` holds.
"""
