"""The documents of Storm's REST API, made of those of the management API."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from topo.errors import ConfigError, did_you_mean
from topo.logs.reader import LEVELS
from topo.manage.api import UnknownComponent
from topo.manage.views import Change, PlacedComponent, TopologyView
from topo.metrics.keys import name_and_labels
from topo.storm_rest import parts
from topo.storm_rest.cluster import NO_LINKS, ClusterDocuments

_WINDOWS = {"600": "10m", "10800": "3h", "86400": "1d", ":all-time": "all"}
_PRETTY = {
    "600": "10m 0s",
    "10800": "3h 0m 0s",
    "86400": "1d 0h 0m 0s",
    ":all-time": "All time",
}
_SAMPLING_PERCENT = 10
_NO_SHARED_MEMORY = {
    f"{verb}{kind}{heap}HeapMem": 0
    for verb in ("requested", "assigned")
    for kind in ("Regular", "Shared")
    for heap in ("On", "Off")
}


class StormDocuments(ClusterDocuments):
    """Answers Storm's questions about one registry."""

    def topologies(self) -> dict[str, Any]:
        return {
            "schedulerDisplayResource": False,
            "topologies": [self.summary(row) for row in self.live()],
        }

    def topology(self, name: str, window: str) -> dict[str, Any]:
        view = self._view(name, window)
        errors = self._management.errors(name)
        spouts, bolts = parts.by_kind(view)
        conf = {setting.key: setting.value for setting in self._management.conf(name)}
        return {
            **self.summary(view),
            **_NO_SHARED_MEMORY,
            **NO_LINKS,
            "schedulerDisplayResource": False,
            "user": None,
            "visualizationTable": [],
            "msgTimeout": int(view.message_timeout_secs),
            "window": window,
            "windowHint": _PRETTY[window],
            "debug": bool(conf.get("topology.debug")),
            "samplingPct": _SAMPLING_PERCENT,
            "configuration": conf,
            "topologyStats": [self._window_stats(name, key) for key in _WINDOWS],
            "spouts": [parts.spout(name, of, errors) for name, of in spouts.items()],
            "bolts": [parts.bolt(name, of, errors) for name, of in bolts.items()],
            "workers": self.workers_of(view),
        }

    def component(self, name: str, component: str, window: str) -> dict[str, Any]:
        view = self._view(name, window)
        placed = self._placed(name, component)
        of = view.components.get(component) or {}
        is_spout = placed.kind == "spout"
        errors = self._management.errors(name, component)
        document: dict[str, Any] = {
            "user": None,
            "id": component,
            "encodedId": quote(component, safe=""),
            "name": view.name,
            "executors": placed.tasks,
            "tasks": placed.tasks,
            "topologyId": view.id,
            "encodedTopologyId": quote(view.id, safe=""),
            "topologyStatus": view.status,
            "componentType": placed.kind,
            "window": window,
            "windowHint": _PRETTY[window],
            "debug": False,
            "samplingPct": _SAMPLING_PERCENT,
            "schedulerDisplayResource": False,
            "requestedMemOnHeap": 0,
            "requestedMemOffHeap": 0,
            "requestedCpu": 0,
            "requestedGenericResources": "",
            "profilingAndDebuggingCapable": False,
            "profileActionEnabled": False,
            "profilerActive": [],
            "componentErrors": [
                parts.error(error) for error in sorted(errors, key=lambda error: error.last)
            ],
            "outputStats": [
                parts.output(stream, count, of, is_spout)
                for stream, count in parts.by_stream(of, "emitted").items()
            ],
            "executorStats": [
                parts.executor(task, figures, view, is_spout)
                for task, figures in (of.get("by_task") or {}).items()
            ],
        }
        windows = [(key, self._component_window(name, component, key)) for key in _WINDOWS]
        if is_spout:
            last = parts.last_error(component, errors)["lastError"]
            document["spoutSummary"] = [
                parts.window_of_spout(key, _PRETTY[key], of, last) for key, of in windows
            ]
        else:
            document["inputStats"] = [parts.input(read, of) for read in parts.inputs(placed)]
            document["boltStats"] = [
                parts.window_of_bolt(key, _PRETTY[key], of) for key, of in windows
            ]
        return document

    def metrics(self, name: str, window: str) -> dict[str, Any]:
        view = self._view(name, window)
        spouts, bolts = parts.by_kind(view)
        inputs = {
            placed.id: parts.inputs(placed) for placed in self._management.plan(name).components
        }
        return {
            "window": window,
            "windowHint": _PRETTY[window],
            "spouts": [parts.spout_metrics(name, of) for name, of in spouts.items()],
            "bolts": [
                parts.bolt_metrics(name, of, inputs.get(name, [])) for name, of in bolts.items()
            ],
        }

    def streams(self, name: str) -> dict[str, Any]:
        names = sorted(
            {
                read.stream
                for placed in self._management.plan(name).components
                for read in placed.inputs
            }
        )
        row = [
            {
                ":stream": stream,
                ":sani-stream": parts.sanitized(stream),
                ":checked": stream != "__ack",
                "stream": stream,
                "sani-stream": parts.sanitized(stream),
                "checked": True,
            }
            for stream in names
        ]
        return {"visualizationTable": [{":row": row[at : at + 4]} for at in range(0, len(row), 4)]}

    def visualization(self, name: str, window: str) -> dict[str, Any]:
        view = self._view(name, window)
        secs = int(view.uptime_secs)
        found = {}
        for placed in self._management.plan(name).components:
            of = view.components.get(placed.id) or {}
            transferred = of.get("transferred", 0)
            streams = {read.name: 0 for read in placed.outputs} | parts.by_stream(of, "emitted")
            found[placed.id] = {
                ":type": placed.kind,
                ":capacity": of.get("capacity") or 0.0,
                ":latency": parts.three(
                    of.get("complete_ms" if placed.kind == "spout" else "process_ms")
                ),
                ":transferred": streams,
                ":stats": [
                    {
                        ":host": view.host,
                        ":port": 0,
                        ":uptime_secs": secs,
                        ":transferred": {"default": transferred},
                    }
                ],
                ":inputs": [
                    {
                        ":component": read.component,
                        ":stream": read.stream,
                        ":sani-stream": parts.sanitized(read.stream),
                        ":grouping": read.grouping,
                    }
                    for read in placed.inputs
                ],
                ":link": f"/#/topology/{quote(view.name, safe='')}",
            }
        return found

    def lag(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the lag by partition of each spout that tells one: its gauge "lag"."""
        lags: dict[str, dict[str, Any]] = {}
        for spout, of in parts.by_kind(self._management.topology(name))[0].items():
            topics: dict[str, dict[str, Any]] = {}
            for key, value in (of.get("gauges") or {}).items():
                gauge, labels = name_and_labels(key)
                if gauge == "lag":
                    partitions = topics.setdefault(labels.get("topic", ""), {})
                    partitions[labels.get("partition", "0")] = {
                        "consumerCommittedOffset": None,
                        "logHeadOffset": None,
                        "lag": value,
                    }
            if topics:
                lags[spout] = {"spoutId": spout, "spoutType": "KAFKA", "spoutLagResult": topics}
        return lags

    def log_levels(self, name: str) -> dict[str, Any]:
        levels = self._management.log_requests(name).levels
        return {
            "namedLoggerLevels": {
                level.logger or "ROOT": {
                    "target_level": level.level,
                    "reset_level": "INFO",
                    "timeout": max(0, int(level.until - time.time())),
                    "timeout_epoch": int(level.until * 1000),
                }
                for level in levels
            }
        }

    def set_log_levels(self, name: str, document: Any) -> dict[str, Any]:
        """Take `{"namedLoggerLevels": {LOGGER: {"target_level", "timeout"}}}`."""
        try:
            for logger, asked in document["namedLoggerLevels"].items():
                level = {"WARN": "WARNING", "FATAL": "CRITICAL", "TRACE": "DEBUG"}.get(
                    str(asked.get("target_level")), str(asked.get("target_level"))
                )
                if level not in LEVELS:
                    raise ConfigError(f"no level {level[:100]!r}", hint=", ".join(LEVELS))
                secs = float(asked.get("timeout") or 600)
                own = "" if logger == "ROOT" else str(logger)
                self._management.set_log_level(name, own, level, min(max(0.0, secs), 86_400.0))
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ConfigError('the body is not {"namedLoggerLevels": {...}}') from None
        return self.log_levels(name)

    def debug(self, name: str, component: str | None, enable: bool, percent: float) -> Any:
        """Sample one component, or all: topo samples by number, whatever the percentage."""
        found = self._management.find(name)
        every = [placed.id for placed in self._management.plan(name).components]
        per_sec = min(100.0, max(1.0, percent))
        for one in [component] if component else every:
            self._management.sample(name, one, per_sec, 600.0 if enable else 0.0)
        verb = "enable" if enable else "disable"
        return {"topologyOperation": f"debug/{verb}", "topologyId": found.id, "status": "success"}

    def rebalance(self, name: str, document: Any) -> dict[str, Any]:
        """Take `{"rebalanceOptions": {"numWorkers": N, "executors": {COMPONENT: TASKS}}}`."""
        try:
            options = document["rebalanceOptions"]
            workers = int(options["numWorkers"]) if "numWorkers" in options else None
            executors = options.get("executors") or {}
            tasks = {str(component): int(count) for component, count in executors.items()}
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            raise ConfigError(
                'the body is not {"rebalanceOptions": {"numWorkers": N, "executors": {NAME: N}}}'
            ) from None
        if not (workers or tasks) or min([workers or 1, *tasks.values()]) < 1:
            raise ConfigError("numWorkers and executors can change, to 1 or more")
        return self.change(
            name, "rebalance", lambda: self._management.rebalance(name, workers, tasks)
        )

    def change(self, name: str, action: str, change: Callable[[], Change]) -> dict[str, Any]:
        found = self._management.find(name)
        change()
        return {"topologyOperation": action, "topologyId": found.id, "status": "success"}

    # Parts

    def _view(self, name: str, window: str) -> TopologyView:
        return self._management.topology(name, window_of(window))

    def _placed(self, name: str, component: str) -> PlacedComponent:
        placed = {one.id: one for one in self._management.plan(name).components}
        if component not in placed:
            raise UnknownComponent(
                f"no component {component!r}", hint=did_you_mean(component, placed)
            )
        return placed[component]

    def _window_stats(self, name: str, window: str) -> dict[str, Any]:
        view = self._view(name, window)
        spouts, _ = parts.by_kind(view)
        every = view.components.values()
        acked = sum(of["acked"] for of in spouts.values())
        total = sum((of["complete_ms"] or 0) * of["acked"] for of in spouts.values())
        return {
            "window": window,
            "windowPretty": _PRETTY[window],
            "emitted": sum(of["emitted"] for of in every),
            "transferred": sum(of["transferred"] for of in every),
            "completeLatency": parts.three(total / acked if acked else 0.0),
            "acked": acked,
            "failed": sum(of["failed"] for of in spouts.values()),
        }

    def _component_window(self, name: str, component: str, window: str) -> parts.Figures:
        return self._view(name, window).components.get(component) or {}


def window_of(window: str) -> str:
    """Return topo's name of a window of Storm's."""
    if window not in _WINDOWS:
        raise ConfigError(f"no window {window[:100]!r}", hint=", ".join(_WINDOWS))
    return _WINDOWS[window]
