"""Indexes of Elasticsearch and OpenSearch as a sink: `ElasticsearchBolt`."""

from topo.connectors.elasticsearch.sink import ElasticsearchBolt

__all__ = ["ElasticsearchBolt"]
