"""Tables of SQL databases as a source, a sink and a dictionary.

Whatever SQLAlchemy has a dialect for will do: PostgreSQL, SQLite, MySQL and others, by its URL.
"""

from topo.connectors.sql.changes import PostgresChanges
from topo.connectors.sql.lookup import SqlLookupBolt
from topo.connectors.sql.sink import SqlBolt
from topo.connectors.sql.spout import SqlSpout

__all__ = ["PostgresChanges", "SqlBolt", "SqlLookupBolt", "SqlSpout"]
