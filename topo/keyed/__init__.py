"""Components with one instance for each key: what people draw as a box for each user or machine.

`bolt` is the class that users inherit from, `operator` runs the instances of one task, `instances`
makes them and knows what of them is saved, `timers` is what everything with timers by key shares.
"""
