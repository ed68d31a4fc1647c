"""Redis as a source, a sink and a dictionary; Valkey and other servers of its protocol as well."""

from topo.connectors.redis.lists import RedisListSpout
from topo.connectors.redis.lookup import RedisFilterBolt, RedisLookupBolt
from topo.connectors.redis.pubsub import RedisPubSubSpout
from topo.connectors.redis.sink import RedisStoreBolt
from topo.connectors.redis.spout import RedisStreamSpout

__all__ = [
    "RedisFilterBolt",
    "RedisListSpout",
    "RedisLookupBolt",
    "RedisPubSubSpout",
    "RedisStoreBolt",
    "RedisStreamSpout",
]
