"""The suites of `topo bench`, each measured and checked against an oracle.

`model` says what a suite is; `report` runs suites and compares them with a baseline.
"""
