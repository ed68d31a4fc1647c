"""Figures and health of a run for others, as its settings say: for Prometheus, OTLP and probes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from topo.config import Config
from topo.engine.base import Run
from topo.metrics.prometheus import Exposed, FiguresCollector, exposition
from topo.running import ACTIVE, STARTING
from topo.serving.figures import Answer, FigureServer, Page
from topo.tracing.figures import FigurePusher

_log = logging.getLogger(__name__)


@contextmanager
def exposed_figures(
    name: str,
    conf: Config,
    exposed: Callable[[], Exposed],
    pages: Mapping[str, Page] | None = None,
) -> Iterator[None]:
    """Serve `pages`, and push what `exposed` returns, for as long as this lasts."""
    with ExitStack() as ends:
        if conf.metrics_bind:
            server = FigureServer(conf.metrics_bind, pages or {})
            ends.callback(server.stop)
            announce(server.address)
        ends.enter_context(pushed_figures(name, conf, exposed))
        yield


def announce(address: str) -> None:
    """Log where pages are served."""
    _log.info("figures for Prometheus at http://%s/metrics", address)


@contextmanager
def pushed_figures(name: str, conf: Config, exposed: Callable[[], Exposed]) -> Iterator[None]:
    """Push what `exposed` returns to a collector, if the settings name one."""
    if not conf.metrics_endpoint:
        yield
        return
    pusher = FigurePusher(
        conf.metrics_endpoint,
        name,
        conf.metrics_secs,
        lambda: FiguresCollector([exposed()]).collect(),
    )
    try:
        yield
    finally:
        pusher.stop()


def pages_of(
    current: Callable[[], Run | None], exposed: Callable[[Run], Exposed]
) -> dict[str, Page]:
    """Return the pages of a run: its figures, whether it lives, and whether it is ready.

    One that starts, or waits for something outside, lives: a new start would not help it.
    """

    def metrics(accept: str, query: Mapping[str, list[str]]) -> tuple[bytes, str] | Answer:
        run = current()
        if run is None:
            return _line(STARTING, is_well=False)
        return exposition([exposed(run)], accept, by_task=query.get("by") == ["task"])

    def health(accept: str, query: Mapping[str, list[str]]) -> Answer:
        run = current()
        return _line(_state_of(run), is_well=run is None or run.error is None)

    def readiness(accept: str, query: Mapping[str, list[str]]) -> Answer:
        run = current()
        return _line(_state_of(run), is_well=run is not None and run.status == ACTIVE)

    return {"/metrics": metrics, "/healthz": health, "/readyz": readiness}


def _state_of(run: Run | None) -> str:
    """Return a run's status, and why."""
    return STARTING if run is None else ": ".join(filter(None, [run.status, run.reason]))


def _line(text: str, *, is_well: bool) -> Answer:
    return f"{text}\n".encode(), "text/plain; charset=utf-8", 200 if is_well else 503
