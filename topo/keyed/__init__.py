"""Components with one instance for each key: what people draw as a box for each user or machine.

`operator` runs the instances of one task for a `KeyedBolt` of `topo.bolts`, `instances` makes them
and knows what of them is saved, `timers` is what everything with timers by key shares.
"""
