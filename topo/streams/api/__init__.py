"""Programs of streams as they are written: builders, streams, windows, tables, and their endings.

Nothing here runs. Each call adds an operator to the graph (`topo.streams.graph`).
"""
