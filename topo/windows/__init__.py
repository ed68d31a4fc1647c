"""Windows over event time and over arrival.

Pure parts, without I/O and clocks: `assigners` (which windows a time is in), `triggers` (when a
window reports), `panes`, `sessions`, `event_windows` and `general` (state and firing of
aggregates), `storm` (the windows of Storm over raw tuples). `aggregate_operator`, `executor` and
`storm_executor` work for the bolts of `topo.bolts`, by the contract of `topo.timed`.
"""
