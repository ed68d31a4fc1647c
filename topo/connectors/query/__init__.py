"""SQL over the tuples of a batch, or of the latest ones: DuckDB in the slot (`topo-spark[query]`).

`bolt` is what topologies are written with, `engine` runs the query, and `retained` keeps the rows
that a query over more than a batch looks back on.
"""

from topo.connectors.query.bolt import QueryBolt

__all__ = ["QueryBolt"]
