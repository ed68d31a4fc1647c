"""Joins of streams: by interval, by window, and in groups.

`rows` and `session_rows` hold rows until the watermark has passed what they could match;
`interval`, `window_join` and `cogroup` are the operators over them, by the contract of
`topo.timed`. The bolts that they work for are declared in `topo.bolts`.
"""
