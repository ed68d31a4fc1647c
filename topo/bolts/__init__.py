"""The bolts that people declare: windows, joins, tables, patterns, rules, models, keyed components.

Each is a declaration: arguments that are checked where they are written, the fields that come out,
and problems with what is read. The work is done by an operator of the room of that name,
which knows no bolt: what it needs of one stands beside it as a protocol. `topo` exports them all.
"""
