"""Tables of ClickHouse as a sink: `ClickHouseBolt`."""

from topo.connectors.clickhouse.sink import ClickHouseBolt

__all__ = ["ClickHouseBolt"]
