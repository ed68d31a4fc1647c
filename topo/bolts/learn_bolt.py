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
from typing import Any

from topo.components import OutputFieldsDeclarer
from topo.errors import LearnError, Problem
from topo.learning.learn import DRIFT, EVALUATION, MODEL, LearnOperator
from topo.learning.protocols import needs_label, protocol_problem, requirements_of
from topo.operators.inputs import key_fields, key_problems, missing_fields
from topo.timed import InputFields, Operator, OperatorTask, TimedBolt
from topo.tuples import Fields

PREDICTIONS = "predictions"
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
        return LearnOperator(self, task)


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
