"""The part of a driver that gives its topology more slots or fewer by itself.

Each look takes the figures that everybody is shown and asks the rules (`scaling.py`); a step is a
rebalance as `topo rebalance -n` begins it. Decisions and what the rules remember are written after
each look, and before a step begins, so that a driver that dies in a step leaves the next one its
rest.

A micro-batch says how long it waited for data. What any batch costs, whatever is in it, is taken
off the rest, or a trickle of tuples would look like a full slot. An epoch of real-time mode says
nothing of that, so there a slot is as busy as the code of its bolts.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from topo.config import Config
from topo.config.layers import Layer, effective
from topo.config.masters import is_local, local_cores
from topo.config.slot_range import slot_range
from topo.engine.abilities import Scalable
from topo.engine.base import Launch, Run, engine_named
from topo.errors import TopoError, sentence_of
from topo.manage.answers import asked_of, read_document, views_of
from topo.manage.files import write_json_if_possible
from topo.manage.marks import note_mark
from topo.manage.records import RunRecord
from topo.manage.scaling import (
    BARRED,
    FAILED,
    LIMIT,
    SKEW,
    Decision,
    Load,
    Sample,
    Scaler,
    ScalingRules,
)
from topo.manage.views import DecisionView, ScaleView
from topo.metrics.keys import name_and_labels
from topo.running import ACTIVE, ComponentStats, RunStats
from topo.tracking.clock import SteadyClock

log = logging.getLogger("topo.manage")
FILE = "scale.json"
LAGS = ("lag", "length")
"""Gauges of spouts that say how many messages wait in a source."""
_LOGGED = (SKEW, BARRED, FAILED, LIMIT)
_FIXED_PART = 0.1
"""The most of a batch's target time that counts as its cost whatever is in it."""
_SPARK = "spark"
_NEVER = 1e11
"""A time that no decision has, in seconds, which still has a date."""


def rules_of(conf: Mapping[str, Any]) -> ScalingRules | None:
    """Return the rules that a topology's settings make; None if it does not scale."""
    limits = slot_range(conf)
    if limits is None:
        return None
    settings = Config({key: each.value for key, each in effective(Layer("conf", conf)).items()})
    return ScalingRules(
        *limits,
        utilization=settings.scale_utilization,
        catch_up_secs=settings.scale_catch_up_secs,
        window_secs=settings.scale_window_secs,
        up_secs=settings.scale_up_secs,
        down_secs=settings.scale_down_secs,
        rest_secs=settings.scale_rest_secs,
        retry_secs=settings.scale_retry_secs,
        is_dry=settings.scale_dry_run,
    )


class Autoscaling:
    """The looks at one topology. Its driver's thread calls it; any thread `document`, `remark`."""

    def __init__(
        self,
        directory: Path,
        launch: Launch,
        rebalance: Callable[[int], object],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._directory = directory
        self._rebalance = rebalance
        self._name = launch.name
        self._clock = clock or SteadyClock()
        self._lock = threading.Lock()
        self._measure = Measure(launch)
        self._secs = Config(launch.conf).scale_secs
        self._due = self._clock()
        self._is_stepping = False
        self._sample: Sample | None = None
        self._scaler: Scaler | None = None
        rules = rules_of(launch.conf)
        if rules is not None:
            state = read_document(directory / FILE)
            self._scaler = Scaler(rules, self._clock(), state if isinstance(state, dict) else {})

    @property
    def remark(self) -> str:
        """What those who look at the topology's status are to know; or ""."""
        with self._lock:
            if self._scaler is None or self._sample is None:
                return ""
            last = self._scaler.decisions[-1]
            return last.reason if last.verdict == SKEW else ""

    def document(self) -> dict[str, Any]:
        """Return the limits, the latest decisions, and what would be decided at this moment."""
        with self._lock:
            scaler, sample = self._scaler, self._sample
            if scaler is None:
                return {}
            document = _document(scaler)
            if sample is not None:
                document["next"] = asdict(scaler.peek(replace(sample, at=self._clock())))
            return document

    def follow(self, run: Run) -> None:
        """Look, if it is time to; begin the step that is decided on."""
        scaler, now = self._scaler, self._clock()
        if scaler is None or now < self._due or not isinstance(run, Scalable):
            return
        if run.is_rebalancing or self._is_stepping:
            return
        self._due = now + self._secs
        try:
            if run.status == ACTIVE:
                self._look(scaler, run, now)
            else:  # nothing that is measured now says how it is at work
                with self._lock:
                    self._sample = None
                    scaler.pause(now)
        except Exception:  # the topology is worth more than its number of slots
            log.exception(
                "internal error: %s does not scale any more; please report this", self._name
            )
            note_mark(self._directory, "rebalance", "scaling ended by an internal error")
            with self._lock:
                self._scaler = None

    def _look(self, scaler: Scaler, run: Any, now: float) -> None:
        sample = self._measure.sample(run, now)
        with self._lock:
            before = scaler.decisions[-1] if scaler.decisions else None
            decision = scaler.look(sample)
            self._sample = sample
        self._write()
        if decision.is_step:
            self._step(run, decision)
        elif before is None or before.verdict != decision.verdict or before.to != decision.to:
            self._tell(decision)

    def settle(self, run: Scalable) -> None:
        """Note that a rebalance has come to its end, whoever began it."""
        if self._scaler is None:
            return
        failure = run.rebalance_failure if self._is_stepping else ""
        self._is_stepping = False
        with self._lock:
            self._sample = None
            self._scaler.settle(self._clock(), run.slots, failure)
            last = self._scaler.decisions[-1] if failure else None
        self._write()
        if last is not None:
            self._tell(last)

    def _step(self, run: Scalable, decision: Decision) -> None:
        log.info(
            "%s scales from %s to %s slots (%s): %s; %s",
            self._name,
            decision.slots,
            decision.to,
            decision.verdict,
            decision.reason,
            in_words(decision),
        )
        note_mark(self._directory, "rebalance", f"scaling {decision.verdict}: {decision.reason}")
        self._is_stepping = True
        try:
            self._rebalance(decision.to)
        except TopoError as error:
            self._is_stepping = False
            # One that somebody else has begun a moment ago says nothing against this step.
            failure = "" if run.is_rebalancing else sentence_of(error)
            with self._lock:
                assert self._scaler is not None, "it has decided"
                self._scaler.settle(self._clock(), run.slots, failure)
                last = self._scaler.decisions[-1]
            self._write()
            self._tell(last)

    def _tell(self, decision: Decision) -> None:
        """Log what keeps a topology from being scaled, and what it would do in a dry run."""
        if decision.verdict not in _LOGGED and not decision.is_dry:
            return
        would = (
            f"would scale from {decision.slots} to {decision.to} slots"
            if decision.is_dry
            else "does not scale"
        )
        words = f"{self._name} {would}: {decision.reason}"
        log.warning("%s; %s", words, in_words(decision))
        note_mark(self._directory, "rebalance", f"scaling {decision.verdict}: {decision.reason}")

    def _write(self) -> None:
        with self._lock:
            assert self._scaler is not None, "it has decided"
            document = _document(self._scaler)
        write_json_if_possible(self._directory / FILE, document)


def _document(scaler: Scaler) -> dict[str, Any]:
    rules = scaler.rules
    limits = {"least": rules.least, "most": rules.most, "is_dry": rules.is_dry}
    return {**limits, **scaler.state()}


def scale_of(run: RunRecord) -> ScaleView:
    """Return what a topology has decided: what its driver says, or what it wrote last."""
    document = asked_of(run, lambda client: client.scale())
    if document is None:
        document = read_document(run.directory / FILE)
    if not isinstance(document, dict):
        document = {}
    limits = slot_range(run.submission.conf)
    least, most = limits if limits is not None else (None, None)
    following = _views([document.get("next")])
    return ScaleView(
        run.name,
        run.submission.workers,
        least,
        most,
        bool(document.get("is_dry")),
        _views(document.get("decisions"))[::-1],
        following[0] if following else None,
    )


def _views(decisions: Any) -> list[DecisionView]:
    """Return the decisions of a document as views, without those that are damaged."""
    flat = [
        {**each, **each["figures"]}
        for each in (decisions if isinstance(decisions, list) else [])
        if isinstance(each, dict) and isinstance(each.get("figures"), dict)
    ]
    return [each for each in views_of(DecisionView, flat) if _can_be_shown(each)]


def _can_be_shown(view: DecisionView) -> bool:
    """Return True if its times are of this age and its figures finite: others are damaged."""
    figures = (view.rate, view.demand, view.busy, view.slot_rate, view.lag)
    return all(0 <= time < _NEVER for time in (view.at, view.until)) and all(
        math.isfinite(each) for each in figures if each is not None
    )


def in_words(decision: Decision | DecisionView) -> str:
    """Return the figures behind a decision."""
    figures = decision.figures if isinstance(decision, Decision) else decision
    if figures.rate is None or figures.busy is None or figures.demand is None:
        return "not measured yet"
    parts = [f"{figures.rate:,.0f}/s in", f"{figures.demand:,.0f}/s to do"]
    parts.append(f"slots {figures.busy:.0%} busy")
    if figures.slot_rate is not None:
        parts.append(f"{figures.slot_rate:,.0f}/s a busy slot")
    if figures.lag is not None:
        parts.append(f"lag {figures.lag:,.0f}")
    if decision.needed is not None:
        parts.append(f"needs {decision.needed}")
    return ", ".join(parts)


class Measure:
    """The samples of a run, from the figures that it counts."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._is_real_time = Config(launch.conf).mode == "real-time"
        self._fixed_ms = _FIXED_PART * Config(launch.conf).batch_target_ms
        self._busy_secs = 0.0
        self._batches = 0
        self._worked_secs = 0.0
        self._placed: tuple[int, Any] = (0, None)
        self._slots: dict[int, int] = {}
        """The slot of each task."""

    def sample(self, run: Any, now: float) -> Sample:
        stats: RunStats = run.stats()
        slots = run.slots
        loads = self._loads(stats, slots, run.task_ids)
        if self._is_real_time:
            self._busy_secs = sum(load.secs for load in loads.values()) / max(1, slots)
        else:
            self._take_batches(run, stats)
        spouts = [each for each in stats.components.values() if each.kind == "spout"]
        return Sample(
            now,
            slots,
            float(sum(spout.emitted for spout in spouts)),
            self._busy_secs,
            lag_of(spouts),
            loads,
            self._places(),
        )

    def _take_batches(self, run: Any, stats: RunStats) -> None:
        """Add the time in which the batches since the last sample were busy with tuples."""
        worked = [each.ms - each.waited_ms for each in run.batches()]
        fixed = max(0.0, min([self._fixed_ms, *worked])) / 1000
        batches = stats.batch.count - self._batches
        more = stats.batch.worked_secs - self._worked_secs
        self._busy_secs += max(0.0, more - fixed * max(0, batches))
        self._batches, self._worked_secs = stats.batch.count, stats.batch.worked_secs

    def _places(self) -> int | None:
        master = self._launch.master
        if self._is_real_time or not is_local(master):
            return None  # a step for which there are no cores fails, and says so
        return local_cores(master)

    def _loads(self, stats: RunStats, slots: int, ids: Any) -> dict[str, Load]:
        if self._placed != (slots, ids):
            self._slots = self._slots_of_tasks(slots, ids)
            self._placed = slots, ids
        return {
            f"{name} task {task}": Load(self._slots.get(int(task), 0), busy_secs_of(figures))
            for name, component in stats.components.items()
            if component.kind != "spout"
            for task, figures in component.by_task.items()
        }

    def _slots_of_tasks(self, slots: int, ids: Any) -> dict[int, int]:
        conf = {**self._launch.conf, Config.workers.key: slots}
        if ids is not None:
            conf[Config.task_ids.key] = ids
        # An engine without a plan of its own is taken to place tasks as Spark's does.
        plan = engine_named(_SPARK).plan(replace(self._launch, conf=conf))
        return {
            task: slot
            for placed in plan.components
            for task, slot in zip(placed.tasks, placed.slots, strict=True)
        }


def busy_secs_of(figures: ComponentStats) -> float:
    """Return how long the code of a bolt was busy."""
    return (figures.execute_ms or 0.0) * figures.executed / 1000


def lag_of(spouts: list[ComponentStats]) -> float | None:
    """Return how many messages wait in the sources; None if no spout says so.

    Tasks that read one queue all see its whole length.
    """
    levels: dict[tuple[int, str], float] = {}
    for number, spout in enumerate(spouts):
        for figures in spout.by_task.values():
            for key, level in figures.gauges.items():
                if name_and_labels(key)[0] in LAGS:
                    levels[number, key] = max(levels.get((number, key), 0.0), level)
    return sum(levels.values()) if levels else None
