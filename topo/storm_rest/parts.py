"""Parts of Storm's documents: the figures of components, streams and tasks, in Storm's words."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from topo.manage.views import ErrorView, PlacedComponent, TopologyView
from topo.metrics.inputs import InputFigures, inputs_of

_LAST_ERROR_CHARS = 200
RECENT_SECS = 1800
"""Storm shows an error as a component's last one for so long."""


def uptime(secs: int) -> str:
    """Return seconds as Storm shows them: "14m 5s"."""
    parts = [
        (secs // 86400, "d"),
        (secs // 3600 % 24, "h"),
        (secs // 60 % 60, "m"),
        (secs % 60, "s"),
    ]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{number}{unit}" for number, unit in parts)


def three(value: float | None) -> str:
    return f"{value or 0.0:.3f}"


def sanitized(stream: str) -> str:
    return "s" + re.sub(r"[^\w]", "_", stream)


Figures = Mapping[str, Any]


def by_kind(view: TopologyView) -> tuple[dict[str, Figures], dict[str, Figures]]:
    spouts = {name: of for name, of in view.components.items() if of["kind"] == "spout"}
    return spouts, {name: of for name, of in view.components.items() if name not in spouts}


def by_stream(of: Figures, name: str) -> dict[str, int]:
    return dict(of.get(f"{name}_by") or {"default": of.get(name, 0)})


def counts(of: Figures) -> dict[str, Any]:
    return {key: of.get(key, 0) for key in ("emitted", "transferred", "acked", "failed")}


def complete(of: Figures) -> dict[str, Any]:
    return {"completeLatency": three(of.get("complete_ms"))}


def execution(of: Figures) -> dict[str, Any]:
    return {
        "capacity": three(of.get("capacity")),
        "executeLatency": three(of.get("execute_ms")),
        "executed": of.get("executed", 0),
        "processLatency": three(of.get("process_ms")),
    }


def last_error(component: str, errors: list[ErrorView]) -> dict[str, Any]:
    mine = [error for error in errors if error.component == component]
    fresh = [error for error in mine if time.time() - error.last < RECENT_SECS]
    if not fresh:
        return {
            "lastError": "",
            "errorHost": "",
            "errorPort": None,
            "errorTime": None,
            "errorLapsedSecs": None,
            "errorWorkerLogLink": "",
        }
    last = error(fresh[0])
    return {"lastError": last.pop("error")[:_LAST_ERROR_CHARS], **last}


def error(error: ErrorView) -> dict[str, Any]:
    return {
        "error": error.traceback or f"{error.type}: {error.message}",
        "errorTime": int(error.last),
        "errorHost": error.host,
        "errorPort": 0,
        "errorLapsedSecs": int(max(0.0, time.time() - error.last)),
        "errorWorkerLogLink": "",
    }


def component(name: str, of: Figures, errors: list[ErrorView], kind: str) -> dict[str, Any]:
    return {
        f"{kind}Id": name,
        f"encoded{kind.capitalize()}Id": quote(name, safe=""),
        "executors": of["tasks"],
        "tasks": of["tasks"],
        **counts(of),
        **last_error(name, errors),
        "requestedMemOnHeap": 0,
        "requestedMemOffHeap": 0,
        "requestedCpu": 0,
        "requestedGenericResourcesComp": "",
    }


def spout(name: str, of: Figures, errors: list[ErrorView]) -> dict[str, Any]:
    return component(name, of, errors, "spout") | complete(of)


def bolt(name: str, of: Figures, errors: list[ErrorView]) -> dict[str, Any]:
    return component(name, of, errors, "bolt") | execution(of)


def window_of_spout(window: str, pretty: str, of: Figures, last_error: str) -> dict[str, Any]:
    """Return a spout's figures of a window, where alone Storm has the latency as a number."""
    latency = of.get("complete_ms") or 0.0
    ends = {"completeLatency": latency, "lastError": last_error}
    return {"window": window, "windowPretty": pretty, **counts(of), **ends}


def window_of_bolt(window: str, pretty: str, of: Figures) -> dict[str, Any]:
    return {"window": window, "windowPretty": pretty, **counts(of), **execution(of)}


def inputs(placed: PlacedComponent) -> list[tuple[str, str]]:
    return [(read.component, read.stream) for read in placed.inputs]


def input(read: tuple[str, str], of: Figures) -> dict[str, Any]:
    """Return the figures of an input; acks and failures are counted for all inputs together.

    Those of one are its share by the tuples that were executed, as Storm's own are of a sample.
    """
    component, stream = read
    by_read = {(each.component, each.stream): each for each in inputs_of(of)}
    none = InputFigures(component, stream, 0, None, None)
    counts = by_read.get(read, none) if by_read else _of_all_inputs(component, stream, of)
    total = of.get("executed", 0)
    share = counts.executed / total if total else 0.0
    return {
        "component": component,
        "encodedComponentId": quote(component, safe=""),
        "stream": stream,
        "executeLatency": three(counts.execute_ms),
        "processLatency": three(counts.process_ms),
        "executed": counts.executed,
        "acked": round(share * of.get("acked", 0)),
        "failed": round(share * of.get("failed", 0)),
    }


def _of_all_inputs(component: str, stream: str, of: Figures) -> InputFigures:
    """Return what is known of an input in a document without figures by input."""
    times = of.get("execute_ms"), of.get("process_ms")
    return InputFigures(component, stream, of.get("executed", 0), *times)


def output(stream: str, count: int, of: Figures, is_spout: bool) -> dict[str, Any]:
    found = {"stream": stream, "emitted": count, "transferred": of.get("transferred", 0)}
    if is_spout:
        found |= complete(of) | {"acked": of.get("acked", 0), "failed": of.get("failed", 0)}
    return found


def executor(task: str, of: Figures, view: TopologyView, is_spout: bool) -> dict[str, Any]:
    secs = int(view.uptime_secs)
    return {
        "id": f"[{task}-{task}]",
        "encodedId": quote(f"[{task}-{task}]", safe=""),
        "uptime": uptime(secs),
        "uptimeSeconds": secs,
        "host": view.host,
        "port": 0,
        "workerLogLink": f"/#/topology/{quote(view.name, safe='')}/logs",
        **counts(of),
        **(complete(of) if is_spout else execution(of)),
    }


def streams_of(of: Figures, name: str) -> list[dict[str, Any]]:
    return [{"stream_id": stream, "value": value} for stream, value in by_stream(of, name).items()]


def spout_metrics(name: str, of: Figures) -> dict[str, Any]:
    return {
        "id": name,
        "isSpout": True,
        "emitted": streams_of(of, "emitted"),
        "transferred": streams_of(of, "transferred"),
        "acked": streams_of(of, "acked"),
        "failed": streams_of(of, "failed"),
        "complete_ms_avg": [{"stream_id": "default", "value": three(of.get("complete_ms"))}],
    }


def bolt_metrics(name: str, of: Figures, inputs: list[tuple[str, str]]) -> dict[str, Any]:
    reads = [input(read, of) for read in inputs]

    def each(key: str) -> list[dict[str, Any]]:
        return [
            {"component_id": one["component"], "stream_id": one["stream"], "value": one[key]}
            for one in reads
        ]

    return {
        "id": name,
        "isSpout": False,
        "emitted": streams_of(of, "emitted"),
        "transferred": streams_of(of, "transferred"),
        "acked": each("acked"),
        "failed": each("failed"),
        "process_ms_avg": each("processLatency"),
        "executed": each("executed"),
        "executed_ms_avg": each("executeLatency"),
    }
