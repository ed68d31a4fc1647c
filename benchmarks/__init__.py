"""What `topo bench` runs: measured suites, each checked against an oracle.

`model` says what a suite is; `report` runs suites and compares them with a baseline.
"""
