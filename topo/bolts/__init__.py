"""The bolts that people declare: windows, joins and tables as components of a topology.

Each is a declaration: arguments that are checked where they are written, the fields that come out,
and problems with what is read. The work is done by an operator of `windows`, `joins` or `tables`,
which knows no bolt: what it needs of one stands beside it as a protocol. `topo` exports them all.
"""
