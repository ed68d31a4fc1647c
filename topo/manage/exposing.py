"""Figures of a run for others, as its settings say: served for Prometheus, pushed by OTLP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from topo.config import Config
from topo.config.masters import split_address
from topo.metrics.prometheus import Exposed, FiguresCollector, exposition
from topo.metrics.serving import FigureServer, Page
from topo.tracing.figures import FigurePusher

_log = logging.getLogger(__name__)


@contextmanager
def exposed_figures(
    name: str,
    conf: Config,
    exposed: Callable[[], Exposed],
    pages: Mapping[str, Page] | None = None,
) -> Iterator[None]:
    """Serve and push what `exposed` returns, for as long as this lasts; `pages` are served, too."""

    def metrics(accept: str, query: Mapping[str, list[str]]) -> tuple[bytes, str]:
        return exposition([exposed()], accept, by_task=query.get("by") == ["task"])

    with ExitStack() as ends:
        if conf.metrics_bind:
            served: dict[str, Page] = {"/metrics": metrics, **(pages or {})}
            server = FigureServer(*split_address(conf.metrics_bind), served)
            ends.callback(server.stop)
            _log.info("figures for Prometheus at http://%s/metrics", server.address)
        if conf.metrics_endpoint:
            pusher = FigurePusher(
                conf.metrics_endpoint,
                name,
                conf.metrics_secs,
                lambda: FiguresCollector([exposed()]).collect(),
            )
            ends.callback(pusher.stop)
        yield
