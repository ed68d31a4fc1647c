"""Figures and health of a run for others, as its settings say: for Prometheus, OTLP and probes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from topo.config import Config
from topo.config.masters import split_address
from topo.engine.base import Run
from topo.metrics.prometheus import Exposed, FiguresCollector, exposition
from topo.metrics.serving import Answer, FigureServer, Page
from topo.running import ACTIVE
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


def health_pages(run: Run) -> dict[str, Page]:
    """Return the pages for those who look whether a run lives, and whether it is ready.

    One that waits for something outside lives: a new start would not help it.
    """

    def health(accept: str, query: Mapping[str, list[str]]) -> Answer:
        return _health_of(run, run.error is None)

    def readiness(accept: str, query: Mapping[str, list[str]]) -> Answer:
        return _health_of(run, run.status == ACTIVE)

    return {"/healthz": health, "/readyz": readiness}


def _health_of(run: Run, is_well: bool) -> Answer:
    """Return a line with the run's status, and why."""
    text = ": ".join(filter(None, [run.status, run.reason]))
    return f"{text}\n".encode(), "text/plain; charset=utf-8", 200 if is_well else 503
