"""Windows over event time and over arrival.

Pure parts, without I/O and clocks: `assigners` (which windows a time is in), `combiners` (what is
kept of many values), `triggers` (when a window reports), `panes` and `keyed` (state and firing of
aggregates), `storm` (the windows of Storm over raw tuples). `aggregate` and `bolt` make bolts of
them, by the contract of `topo.timed`.
"""
