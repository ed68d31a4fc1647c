"""A run in this process, as `topo local`, `topo run` and `topo.main` hold it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from topo.config import Config
from topo.distribution import require
from topo.engine.base import Launch, Run, engine_named
from topo.logs.directories import make_log_directory
from topo.manage.documents import plain


@contextmanager
def launched(engine: str, launch: Launch, announce: Callable[[], None]) -> Iterator[Run]:
    """Run it; keep its engine's log only if it failed, for somebody to read.

    `announce` is called, and its figures are served, before any of the user's code runs.
    """
    logs = make_log_directory()
    runner = engine_named(engine)
    run = runner.launch(replace(launch, log_file=logs / "spark.log"))
    try:
        announce()
        with _exposed(run, Config(launch.conf)):
            yield run.start()
    finally:
        runner.stop()
        if run.error is None:
            shutil.rmtree(logs, ignore_errors=True)


def _exposed(run: Run, conf: Config) -> AbstractContextManager[None]:
    """Serve the figures and the health of the run, and push the figures, if settings say where."""
    if not conf.metrics_bind and not conf.metrics_endpoint:
        return nullcontext()
    require("ui", Config.metrics_bind.key if conf.metrics_bind else Config.metrics_endpoint.key)
    from topo.manage.exposing import exposed_figures, pages_of
    from topo.metrics.prometheus import Exposed

    def figures(run: Run) -> Exposed:
        return Exposed(run.name, run.status, plain(run.stats()), plain(run.errors()))

    return exposed_figures(run.name, conf, lambda: figures(run), pages_of(lambda: run, figures))
