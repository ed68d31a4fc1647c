"""The answers to questions about one run: its line in the list, its figures, its errors.

The driver is asked first. If it does not answer, the files it wrote last do, in which nothing may
be of another shape than a view has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from topo.config import Config
from topo.errors import TopoError
from topo.manage.client import ControlClient
from topo.manage.documents import made_of, plain
from topo.manage.records import RunRecord
from topo.manage.views import (
    ErrorView,
    TopologyRow,
    TopologyView,
)
from topo.metrics.continued import continued
from topo.running import ComponentStats

WINDOWS: dict[str, float | None] = {"10m": 600.0, "3h": 10_800.0, "1d": 86_400.0, "all": None}


ASK_SECS = 2.0
"""How long an answer waits for a driver before the figures it wrote last are taken."""


T = TypeVar("T")


def row_or_none(run: RunRecord) -> TopologyRow | None:
    """Return a run's line in the list of all; None if its files are too damaged for one."""
    try:
        return row_of(run)
    except Exception:  # one entry of the registry must not hide the others
        return None


def row_of(run: RunRecord) -> TopologyRow:
    """Return a run's line in the list of all."""
    recent, answers = figures_of(run, None if run.over else WINDOWS["10m"])
    components = recent.get("components", {}).values()
    spouts = [of for of in components if of["kind"] == "spout"]
    is_known = answers or (run.over and bool(spouts))
    batch, acker = recent.get("batch") or {}, recent.get("acker") or {}
    return TopologyRow(
        name=str(run.name),
        id=str(run.id),
        status=str(run.status),
        reason=str(run.reason),
        tasks=int(run.submission.tasks),
        workers=run.submission.workers,
        uptime_secs=_uptime(run),
        acked=sum(of["acked"] for of in spouts) if is_known else None,
        failed=sum(of["failed"] for of in spouts) if is_known else None,
        master=str(run.submission.master),
        over=run.over,
        submitted_at=float(run.submission.submitted_at),
        batch=int(run.state.batch),
        restarts=run.supervision.restarts if run.supervision else 0,
        last_failure=run.supervision.last_failure if run.supervision else "",
        rows_per_sec=None if run.over else batch.get("rows_per_sec"),
        lag_secs=None if run.over else acker.get("lag_secs"),
        p50_ms=batch.get("p50_ms"),
        p99_ms=batch.get("p99_ms"),
    )


def view_of(run: RunRecord, window: str = "all") -> TopologyView:
    """Return a run with its figures of a window."""
    found, answers = figures_of(run, WINDOWS[window])
    conf = Config(run.submission.conf)
    supervision = run.supervision
    return TopologyView(
        name=run.name,
        status=run.status,
        reason=run.reason,
        uptime_secs=_uptime(run),
        window=window,
        batch=found.get("batch"),
        components=found.get("components", {}),
        acker=found.get("acker"),
        id=run.id,
        over=run.over,
        since=run.state.since,
        submitted_at=run.submission.submitted_at,
        master=run.submission.master,
        host=run.submission.host,
        workers=run.submission.workers,
        tasks=run.submission.tasks,
        checkpoint=run.submission.checkpoint,
        resumed=run.submission.resumed,
        spark_ui=run.state.ui if run.driver_alive else "",
        error_code=run.state.code,
        hint=run.state.hint,
        traceback=run.state.traceback,
        starts=supervision.starts if supervision else 0,
        restarts=supervision.restarts if supervision else 0,
        failures=supervision.failures if supervision else 0,
        last_failure=supervision.last_failure if supervision else "",
        answers=answers,
        tracked=conf.acker_executors != 0,
        message_timeout_secs=conf.message_timeout_secs,
        errors=len(written_errors(run.directory)),
    )


def figures_of(run: RunRecord, window_secs: float | None = None) -> tuple[dict[str, Any], bool]:
    """Return a run's figures, and True if they are from its driver, not those it wrote last."""
    found = asked_of(run, lambda client: client.stats(window_secs))
    if found is not None:
        return found, True
    return _checked(read_document(run.directory / "stats.json")), False


def written_figures(directory: Path) -> dict[str, Any] | None:
    """Return the figures that a driver wrote last; None if there are none that can be read."""
    figures = _checked(read_document(directory / "stats.json"))
    try:
        return continued(figures, figures) and figures
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def written_errors(directory: Path) -> list[dict[str, Any]]:
    """Return the errors that a driver wrote last."""
    errors = views_of(ErrorView, read_document(directory / "errors.json"))
    return [plain(error) for error in errors]


def errors_of(run: RunRecord) -> list[dict[str, Any]]:
    """Return the errors the driver knows of, or those it wrote last."""
    found = asked_of(run, lambda client: client.errors())
    if found is None:
        found = written_errors(run.directory)
    return found


def asked_of(run: RunRecord, question: Callable[[ControlClient], T]) -> T | None:
    """Return the driver's answer, or None if there is no driver or it does not answer."""
    if run.over or not run.driver_alive or not run.state.address:
        return None
    with suppress(TopoError), ControlClient(run, timeout_secs=ASK_SECS) as client:
        return question(client)
    return None


def read_document(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # a driver will write it again soon
        return None


def _checked(document: Any) -> dict[str, Any]:
    """Return written figures if they have the shape of figures, else none."""
    try:
        components = {
            str(name): {**_NOTHING, **of, "by_task": dict(of.get("by_task") or {})}
            for name, of in document["components"].items()
        }
        numbers = [of[key] for of in components.values() for key in _NOTHING if key in _COUNTED]
        batch, acker = document.get("batch"), document.get("acker")
        parts = [part for part in (batch, acker) if part is not None]
        numbers += [value for part in parts for key, value in part.items() if key != "by_seconds"]
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
    if not all(number is None or isinstance(number, int | float) for number in numbers):
        return {}
    return {**document, "components": components, "batch": batch, "acker": acker}


_NOTHING: dict[str, Any] = plain(ComponentStats("bolt", 0))


_COUNTED = {key for key, value in _NOTHING.items() if value == 0 or value is None}


def _uptime(run: RunRecord) -> float:
    until = run.ended_at or time.time()
    return round(max(0.0, until - run.submission.submitted_at), 1)


def views_of(kind: type[T], documents: Any) -> list[T]:
    """Return views of documents, without those that have another shape."""
    made = []
    for document in documents if isinstance(documents, list) else []:
        with suppress(TypeError, ValueError, AttributeError, OverflowError):
            made.append(made_of(kind, document))
    return made
