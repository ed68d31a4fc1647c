"""HTTP: a source that others post to, sources that ask, and a sink that posts."""

from topo.connectors.http.poll import HttpPollSpout, Response
from topo.connectors.http.sink import HttpBolt
from topo.connectors.http.spout import HttpSpout, Request
from topo.connectors.http.sse import Event, SseSpout

__all__ = ["Event", "HttpBolt", "HttpPollSpout", "HttpSpout", "Request", "Response", "SseSpout"]
