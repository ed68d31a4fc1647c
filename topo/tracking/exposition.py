"""An acker's figures over HTTP: `/metrics` for Prometheus, `/` for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from topo.serving.figures import FigureServer
from topo.tracking.exchange import TrackingFigures
from topo.tracking.figures import for_people
from topo.tracking.prometheus import for_prometheus


class Exposition(FigureServer):
    """A server of the figures that `figures` returns at the time of the request."""

    def __init__(self, bind: str, figures: Callable[[], Mapping[str, TrackingFigures]]) -> None:
        pages = {
            "/metrics": lambda accept, query: for_prometheus(figures(), accept),
            "/": lambda accept, query: (for_people(figures()).encode(), "text/plain"),
        }
        super().__init__(bind, pages)
