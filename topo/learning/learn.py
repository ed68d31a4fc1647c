"""The operator of a `LearnBolt`: the learners of a task, and what it tells of them.

Each example is predicted, measured and then learnt, in the order of its arrival. The models are
committed state, so each example is learnt exactly once, and what comes out belongs to no tuple
tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, Protocol

from topo.learning.learner import Learner, Lesson
from topo.learning.memory import Examples, Learners
from topo.storage.saving import SavedMapping, keys_of
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows
from topo.wire.column import dump

EVALUATION, DRIFT, MODEL = "evaluation", "drift", "model"


class LearnDeclaration(Protocol):
    """What a `LearnBolt` declares, as far as its operator has to know it."""

    model: Any
    label: str | None
    key: tuple[str, ...]
    emits: bool
    metrics: dict[str, Any]
    report: int | timedelta
    drift: Any
    resets: bool
    publish: int | timedelta | None
    ensemble: bool
    max_models: int
    classes: tuple[Any, ...] | None
    reads: tuple[InputFields, ...]

    def features_of(self, fields: Sequence[str]) -> tuple[str, ...]:
        """Return the features of an input with these fields."""


class LearnOperator(Operator):
    """The learners of one task."""

    def __init__(self, bolt: LearnDeclaration, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        self._context = task.component.context
        self._is_keyed = bool(bolt.key)
        member = self._context.this_task_index if bolt.ensemble else None
        self._member = member or 0
        self._features = bolt.features_of(bolt.reads[0].fields)
        lesson = Lesson(
            bolt.model,
            self._features,
            bolt.label is not None,
            bolt.metrics,
            bolt.drift,
            bolt.resets,
            bolt.emits,
            bolt.classes,
            member,
        )
        most = bolt.max_models if bolt.key else 1
        self._learners = Learners(lesson, task.owner, most, is_keyed=self._is_keyed)
        self._out: dict[str, list[list[Any]]] = {EVALUATION: [], DRIFT: [], MODEL: []}
        self._evaluation = _Schedule(EVALUATION, bolt.report, task.owner)
        self._publication = (
            None if bolt.publish is None else _Schedule(MODEL, bolt.publish, task.owner)
        )

    # -- examples -----------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        if not rows.count:
            return
        examples, learnt = self._read(rows)
        if learnt is None:
            predictions = self._learners.learn(examples, self)
        else:
            predictions = [None] * rows.count
            for places, has_labels in self._parts(learnt):
                part = examples.select(places)
                results = self._learners.learn(part, self) if has_labels else self._predict(part)
                for place, result in zip(places, results, strict=True):
                    predictions[place] = result
        if self._bolt.emits:
            values = zip(*rows.columns, predictions, strict=True)
            self._task.emit([list(row) for row in values])

    def _parts(self, learnt: Sequence[bool]) -> Iterable[tuple[Sequence[int], bool]]:
        """Yield the places of rows that are predicted only, and of those that are learnt.

        A model that learns one by one predicts each with all that came before it.
        """
        if self._bolt.emits and hasattr(self._bolt.model, "learn_one"):
            for is_learnt, run in groupby(range(len(learnt)), learnt.__getitem__):
                yield list(run), is_learnt
            return
        for is_learnt in (False, True):
            places = [place for place, learns in enumerate(learnt) if learns is is_learnt]
            if places:
                yield places, is_learnt

    def _read(self, rows: Rows) -> tuple[Examples, list[bool] | None]:
        """Return the examples, and which of them are learnt; None for all."""
        bolt, fields = self._bolt, rows.fields
        columns = [rows.columns[fields.index(name)] for name in self._features]
        keys = None
        if bolt.key:
            keys = keys_of([rows.columns[fields.index(name)] for name in bolt.key], rows.count)
        if bolt.label is None:
            return Examples(rows.count, columns, None, keys), None
        labels = rows.columns[fields.index(bolt.label)]
        labelled = [label is not None for label in labels]
        return Examples(rows.count, columns, labels, keys), None if all(labelled) else labelled

    def _predict(self, examples: Examples) -> list[Any]:
        """Return predictions for examples without a label; None for a key without a model."""
        if not self._bolt.emits:
            return [None] * examples.count
        if examples.keys is None:
            return self._predict_by(None, examples)
        predictions = []
        for place, key in enumerate(examples.keys):
            predictions += self._predict_by(key, examples.select([place]))
        return predictions

    def _predict_by(self, key: Any, examples: Examples) -> list[Any]:
        learner = self._learners.find(key)
        if learner is None:
            return [None] * examples.count
        return learner.predict(examples.columns, examples.count)

    # -- notes of the learners ----------------------------------------------------------------

    def learnt(self, learner: Learner, before: int) -> None:
        now = self._task.now()
        if self._evaluation.is_due(learner.examples, before, now):
            self._evaluate(learner)
        publication = self._publication
        if publication is not None and publication.is_due(learner.examples, before, now):
            self._publish(learner)

    def drifted(self, learner: Learner) -> None:
        self._out[DRIFT].append([*self._key_values(learner), learner.examples])
        self._context.counter("drifts")

    def dropped(self, learner: Learner) -> None:
        self._context.counter("dropped_models")
        if self._publication is not None:
            values = [*self._key_values(learner), learner.examples, None, self._member]
            self._out[MODEL].append(values)

    def _evaluate(self, learner: Learner) -> None:
        measures = learner.measures()
        self._out[EVALUATION].append([*self._key_values(learner), learner.examples, *measures])
        if self._is_keyed:
            return
        for name, value in zip(self._bolt.metrics, measures, strict=True):
            if isinstance(value, int | float):
                self._context.gauge("learning", value, metric=name)

    def _publish(self, learner: Learner) -> None:
        model = dump((self._features, learner.model))
        values = [*self._key_values(learner), learner.examples, model, self._member]
        self._out[MODEL].append(values)

    def _key_values(self, learner: Learner) -> Sequence[Any]:
        if not self._is_keyed:
            return ()
        return (learner.key,) if len(self._bolt.key) == 1 else tuple(learner.key)

    # -- time ---------------------------------------------------------------------------------

    def advance(self, clock: Clock) -> int:
        for schedule, note in (
            (self._evaluation, self._evaluate),
            (self._publication, self._publish),
        ):
            if schedule is None or not schedule.has_come(clock.now, ended=clock.ended):
                continue
            for learner in self._learners:
                if learner.used > schedule.number:
                    note(learner)
            schedule.begin_again(self._learners.number)
        count = 0
        for stream, rows in self._out.items():
            if rows:
                self._task.emit(rows, stream)
                count += len(rows)
                self._out[stream] = []
        self.state_rows = len(self._learners)
        return count

    def wakes_at(self) -> float | None:
        times = [self._evaluation.due]
        times += [] if self._publication is None else [self._publication.due]
        return min((time for time in times if time is not None), default=None)

    # -- state --------------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._learners.load(saved)
        for schedule in filter(None, (self._evaluation, self._publication)):
            schedule.load(saved)
        self.state_rows = len(self._learners)

    def save(self, changes: Any) -> None:
        self._learners.save(changes)
        for schedule in filter(None, (self._evaluation, self._publication)):
            schedule.save(changes)


class _Schedule:
    """When something is done about learners: every so many examples of each, or after a time."""

    def __init__(self, name: str, every: int | timedelta, owner: str) -> None:
        is_count = isinstance(every, int)
        self._count = every if isinstance(every, int) else 0
        self._secs = 0.0 if is_count else every.total_seconds()  # type: ignore[union-attr]
        self._log = SavedMapping(f"schedule-{name}", owner)
        self._is_changed = False
        self.due: float | None = None
        """When, by the clock, it is due; None if nothing was learnt since the last time."""
        self.number = 0
        """The number of the last example at that last time."""

    def is_due(self, examples: int, before: int, now: float) -> bool:
        """Return True if it is due at this count; begin to wait for the time otherwise."""
        if self._count:
            return examples // self._count > before // self._count
        if self.due is None:
            self.due, self._is_changed = now + self._secs, True
        return False

    def has_come(self, now: float, *, ended: bool) -> bool:
        """Return True if the time has come, or the input has ended."""
        return self.due is not None and (ended or now >= self.due)

    def begin_again(self, number: int) -> None:
        """Wait for the next example."""
        self.due, self.number, self._is_changed = None, number, True

    def load(self, saved: Mapping[str, bytes]) -> None:
        self.due, self.number = self._log.load(saved).get("state", (None, 0))

    def save(self, changes: Any) -> None:
        if self._is_changed:
            self._log.save({"state": (self.due, self.number)}, ["state"], changes)
            self._is_changed = False
