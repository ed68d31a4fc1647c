"""`LearnBolt`: a model that learns from its input, is measured on it, and is published to others.

    builder.set_bolt("learn", LearnBolt(
        StandardScaler() | LogisticRegression(), label="clicked", metrics={"auc": ROCAUC()},
    )).global_grouping("labelled")

Each example is predicted, measured and then learnt, in the order of its arrival. An example whose
label is None is only predicted. The models are committed state, so each example is learnt exactly
once, and what comes out of the bolt belongs to no tuple tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import LearnError, Problem
from topo.learning.learner import Learner, Lesson
from topo.learning.memory import Examples, Learners
from topo.learning.protocols import needs_label, protocol_problem, requirements_of
from topo.operators.inputs import key_fields, key_problems, missing_fields
from topo.storage.saving import SavedMapping, keys_of
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows, TimedBolt
from topo.tuples import Fields
from topo.wire.column import dump

PREDICTIONS = "predictions"
EVALUATION, DRIFT, MODEL = "evaluation", "drift", "model"
ON_DRIFT = ("report", "reset")


class LearnBolt(TimedBolt):
    """A bolt whose model learns from each tuple.

    `model` is any object with `learn_one` and `predict_one` or `score_one` (river), or with
    `partial_fit` and `predict` (scikit-learn, which learns the tuples of a frame as one chunk).
    `features` are fields, by default all but key and label. Without `label` the model learns
    unsupervised; if it scores anomalies, it learns without the label, which measures it. A
    classifier that has to know all labels before it learns gets `classes`.

    Streams: with `emit="predictions"` the default stream has the input's fields and `prediction`.
    `evaluation` has the key, `examples` and a field for each of `metrics`, every `report` examples
    or, if that is a timedelta, that long after the first example since the last time. `drift` has
    the key and `examples`, each time that the detector `drift` finds one; with `on_drift="reset"` a
    new model begins. `model` has the key, `version` (the count of its examples), `model` (bytes for
    a `ScoreBolt`) and `member`, every `publish` examples or after that time.

    With `key`, each key has a model of its own, at most `max_models` in a task: beyond that the
    one that was used longest ago is dropped. With `ensemble`, all tasks read every example, and
    each has a member that learns it as often as chance says, once on average.
    """

    transient = ("model", "metrics", "drift")

    def __init__(
        self,
        model: Any,
        *,
        label: str | None = None,
        features: str | Iterable[str] | None = None,
        key: str | Iterable[str] | None = None,
        emit: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        report: int | timedelta = 1_000,
        drift: Any = None,
        on_drift: str = "report",
        publish: int | timedelta | None = None,
        ensemble: bool = False,
        max_models: int = 10_000,
        classes: Sequence[Any] | None = None,
    ) -> None:
        problem = protocol_problem(model)
        if problem:
            hint = "a model has learn_one and predict_one or score_one, or partial_fit and predict"
            raise LearnError(f"LearnBolt: {problem}", hint=hint, code="learn-model")
        self.model = model
        self.label = label
        self.features = None if features is None else tuple(Fields(features))
        self.key = key_fields(key)
        self.emits = _choice("emit", emit, (None, PREDICTIONS)) is not None
        self.metrics = dict(metrics or {})
        self.report = _interval("report", report)
        self.drift = drift
        self.resets = _choice("on_drift", on_drift, ON_DRIFT) == "reset"
        self.publish = None if publish is None else _interval("publish", publish)
        self.ensemble = ensemble
        self.max_models = max_models
        self.classes = None if classes is None else tuple(classes)
        self.requires = requirements_of(model, drift, *self.metrics.values())
        self.reads: tuple[InputFields, ...] = ()
        self._check()

    def _check(self) -> None:
        if self.label is None and needs_label(self.model):
            name = type(self.model).__name__
            raise LearnError(
                f"LearnBolt: a {name} learns from labels, and label is None",
                hint='write label="field"',
            )
        if self.label is None and (self.metrics or self.drift is not None):
            what = "metrics" if self.metrics else "drift"
            raise LearnError(
                f"LearnBolt: {what} compares predictions with labels, and label is None",
                hint='write label="field"; a model that scores anomalies learns without it',
            )
        if self.label is not None and self.label in (*(self.features or ()), *self.key):
            raise LearnError(
                f"LearnBolt: the label {self.label!r} is among the features or in the key",
                hint="a model must not see what it has to predict",
                code="learn-model",
            )
        for name, metric in self.metrics.items():
            if not hasattr(metric, "update") or not hasattr(metric, "get"):
                raise LearnError(
                    f"LearnBolt: the metric {name!r} is {metric!r}, without update and get",
                    hint='write metrics={"accuracy": metrics.Accuracy()}',
                )
        if self.drift is not None and not hasattr(self.drift, "drift_detected"):
            raise LearnError(
                f"LearnBolt: drift is {self.drift!r}, without update and drift_detected",
                hint="write drift=drift.ADWIN()",
            )
        whole = isinstance(self.max_models, int) and not isinstance(self.max_models, bool)
        if not whole or self.max_models < 1:
            raise LearnError(f"LearnBolt: max_models is {self.max_models!r}; it is 1 or more")
        if self.ensemble and self.key:
            raise LearnError(
                "LearnBolt: an ensemble has one model in each task, and a key has its own models",
                hint="take ensemble or key away",
            )

    # -- what it declares ---------------------------------------------------------------------

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        self.reads = tuple(inputs)

    def features_of(self, fields: Sequence[str]) -> tuple[str, ...]:
        """Return the features of an input with these fields."""
        if self.features is not None:
            return self.features
        return tuple(name for name in fields if name != self.label and name not in self.key)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        if self.emits and self.reads:
            declarer.declare(*self.reads[0].fields, "prediction")
        declarer.declare_stream(EVALUATION, *self.key, "examples", *self.metrics)
        if self.drift is not None:
            declarer.declare_stream(DRIFT, *self.key, "examples")
        if self.publish is not None:
            declarer.declare_stream(MODEL, *self.key, "version", "model", "member")

    def describe_time(self) -> str:
        name = type(self.model).__name__
        whose = f"a {name} for each {', '.join(self.key)}" if self.key else f"a {name}"
        return f"learns {whose}" + (", an ensemble" if self.ensemble else "")

    # -- checks -------------------------------------------------------------------------------

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        for read in inputs:
            names = {"feature": self.features or (), "key": self.key}
            names["label"] = () if self.label is None else (self.label,)
            for what, fields in names.items():
                yield from missing_fields(where, read, fields, "learn-input", f"the {what} ")
            first = inputs[0].fields
            if set(self.features_of(read.fields)) != set(self.features_of(first)):
                text = f"{where}: {inputs[0].component!r} and {read.component!r} differ in fields"
                yield Problem("learn-input", where, text, "write features=[...]")
            elif self.emits and read.fields != first:
                text = (
                    f"{where} emits the fields of its input, and those of "
                    f"{inputs[0].component!r} and {read.component!r} differ"
                )
                yield Problem("learn-input", where, text, "emit the same fields in both")
            yield from key_problems(self.key, where, read, tasks, has="models", code="learn-key")
            if tasks == 1 or self.key:
                continue
            if self.ensemble and read.grouping != "all":
                text = (
                    f"{where}: the members of an ensemble learn from all examples, but "
                    f"{read.component!r} comes by {read.grouping} grouping"
                )
                yield Problem("learn-key", where, text, f".all_grouping({read.component!r})")
            elif not self.ensemble and read.grouping != "global":
                text = f"{where} has one model in {tasks} tasks: each would learn a part"
                hint = "give it one task, key=..., or ensemble=True and all grouping"
                yield Problem("learn-key", where, text, hint)

    def operator(self, task: OperatorTask) -> Operator:
        return _LearnOperator(self, task)


class _LearnOperator(Operator):
    """The learners of one task."""

    def __init__(self, bolt: LearnBolt, task: OperatorTask) -> None:
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


def _choice(name: str, value: Any, words: Sequence[Any]) -> Any:
    if value not in words:
        listed = " or ".join(map(repr, words))
        raise LearnError(f"LearnBolt: {name} is {value!r}; it must be {listed}")
    return value


def _interval(name: str, value: Any) -> int | timedelta:
    """Return a number of examples or a time; raise a LearnError for anything else."""
    if isinstance(value, timedelta) and value > timedelta(0):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise LearnError(
        f"LearnBolt: {name} is {value!r}; it takes a number of examples, or a timedelta",
        hint=f"write {name}=1_000, or {name}=timedelta(seconds=10)",
    )
