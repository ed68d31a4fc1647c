"""A run that somebody else attends: a container's runtime, systemd, Kubernetes, spark-submit.

Whoever attends a process knows its signals, its exit code, its log and its health pages, and
nothing else. SIGTERM is the orderly end, so its exit code is 0: the one who sent it would otherwise
take the end for a failure, and start the process again. Nothing is started again in here: a second
supervisor inside of the first would hide failures from it.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topo.cli.failures import INTERRUPTED
from topo.cli.foreground import Foreground, Interrupts, TupleOutput, totals_of
from topo.cli.launched import launched
from topo.cli.output import Output
from topo.config import Config
from topo.config.project import Environment
from topo.engine.base import Launch, Run
from topo.logs.capture import shown_logs
from topo.manage.keeping import tell_systemd
from topo.running import ACTIVE
from topo.tracking.clock import monotonic

GRACE_SECS = 20.0
"""Kubernetes kills a pod 30 s after SIGTERM, and closing the components takes time as well."""
_FIGURES_SECS = 60.0
log = logging.getLogger("topo.run")


def attend(
    launch: Launch,
    *,
    engine: str,
    grace_secs: float,
    as_json: bool,
    warnings: Sequence[str] = (),
) -> int:
    """Run it to its end, or until a signal comes; return the exit code.

    Spouts stop at the first signal, and messages in flight get `grace_secs`. What does not finish
    comes again at the next start, if there is a checkpoint.
    """
    conf = Config(launch.conf)
    with Interrupts() as interrupts, shown_logs(conf.log_level, as_json=as_json):
        for warning in warnings:
            log.warning("%s", warning)
        if not conf.checkpoint_dir:
            log.warning("no checkpoint: each start begins without the state of the one before")
        start = f"{launch.name} on {launch.master} in process {os.getpid()}"
        with launched(engine, launch, lambda: log.info("starting %s", start)) as run:
            foreground = Foreground(
                _Logged(), run, TupleOutput((), launch.topology), None, interrupts, _Changes(run)
            )
            why = foreground.follow(grace_secs)
        totals = ", ".join(f"{count:,} {what}" for what, count in totals_of(run.stats()).items())
        if run.error:
            log.error("%s failed: %s", run.name, run.error)
            raise run.error
        if why == "interrupted":
            why = f"stopped by {signal.Signals(interrupts.first).name}"
        log.info("%s: %s; %s", run.name, why, totals)
    return INTERRUPTED if interrupts.first == signal.SIGINT else 0


def with_checkpoint(conf: Mapping[str, Any], environment: Environment, name: str) -> Config:
    """Return the settings with a place for state, if the environment has one for each name."""
    settings = Config(conf)
    if settings.checkpoint_dir or not environment.checkpoint_dir:
        return settings
    return Config({**conf, Config.checkpoint_dir.key: f"{environment.checkpoint_dir}/{name}"})


class Unwarned(Output):
    """An output that leaves warnings to `attend`, which logs them in the form of its log."""

    def warn(self, text: str) -> None:
        """Do nothing: the one who prepares a topology returns its warnings as well."""


class _Logged(Output):
    """An output whose progress is records, so that the log has one form."""

    def say(self, text: str) -> None:
        log.info("%s", text)


class _Changes:
    """A display that logs changes of the status and its reason, and the figures once a minute.

    It tells systemd when the topology is ready, and when it begins to stop.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before = ("", "")
        self._is_ready = False
        self._due = monotonic() + _FIGURES_SECS

    def __enter__(self) -> Callable[[], None]:
        return self._refresh

    def __exit__(self, *exception: object) -> None:
        tell_systemd("STOPPING=1")

    def _refresh(self) -> None:
        status, reason = self._run.status, self._run.reason or ""
        if (status, reason) != self._before:
            level = logging.INFO if status == ACTIVE or not self._is_ready else logging.WARNING
            log.log(level, "%s", ": ".join(filter(None, [status, reason])))
            self._before = (status, reason)
        if status == ACTIVE and not self._is_ready:
            self._is_ready = True
            tell_systemd("READY=1")
        if monotonic() >= self._due:
            self._due = monotonic() + _FIGURES_SECS
            stats = self._run.stats()
            totals = ", ".join(f"{count:,} {what}" for what, count in totals_of(stats).items())
            log.info("batch %d: %s", stats.batch.id, totals)
