"""One model with everything that goes with it: its measures, its detector of drift, its count.

An example is predicted, measured, and then learnt: so a measure is of examples that the model had
not seen, and all of them serve for both (prequential evaluation). What a step does follows from the
learner and the example alone, never from the clock or the batch. Learning the saved examples again
therefore gives the same learner.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from topo.errors import LearnError, shown
from topo.learning.protocols import Columns, InChunks, OneByOne, is_classifier, model_of

_NONE = math.exp(-1)
"""The part of the examples that a member of an ensemble leaves out."""


@dataclass(frozen=True)
class Lesson:
    """The declaration of what is learnt, and how it is measured."""

    model: Any
    features: tuple[str, ...]
    has_label: bool
    metrics: Mapping[str, Any]
    drift: Any
    resets: bool
    """A drift begins a new model."""
    predicts: bool
    """Predictions are emitted."""
    classes: Sequence[Any] | None
    member: int | None
    """The number of the task, if it has a member of an ensemble."""


class Notes(Protocol):
    """What a task does about the steps of its learners."""

    def learnt(self, learner: Learner, before: int) -> None:
        """Note that a learner's count has grown from `before`."""

    def drifted(self, learner: Learner) -> None:
        """Note that the detector has found a drift."""

    def dropped(self, learner: Learner) -> None:
        """Note that a learner made room for another one."""


class Silence:
    """The notes of a task that learns saved examples again: all was emitted before."""

    def learnt(self, learner: Learner, before: int) -> None: ...

    def drifted(self, learner: Learner) -> None: ...

    def dropped(self, learner: Learner) -> None: ...


class Learner:
    """The model of one key."""

    def __init__(self, lesson: Lesson, key: Any) -> None:
        self.key = key
        self.examples = 0
        """How many examples it has seen, with those before a new model began."""
        self.used = 0
        """The number of the last example that it got, among those of the task."""
        self._lesson = lesson
        self._metrics = {name: copy.deepcopy(metric) for name, metric in lesson.metrics.items()}
        self._random = None if lesson.member is None else random.Random(f"{lesson.member} {key!r}")
        self._begin_model()
        self._sort_metrics()

    def _begin_model(self) -> None:
        lesson = self._lesson
        model = copy.deepcopy(lesson.model)
        self._model: OneByOne | InChunks = model_of(model, lesson.features, lesson.classes)
        self._detector = copy.deepcopy(lesson.drift)

    def _sort_metrics(self) -> None:
        """Tell the measures of predicted labels from those of probabilities."""
        has_proba = is_classifier(self._model.model)
        self._by_label: list[Any] = []
        self._by_proba: list[Any] = []
        for metric in self._metrics.values():
            by_proba = has_proba and getattr(metric, "requires_labels", True) is False
            (self._by_proba if by_proba else self._by_label).append(metric)
        self._asks_label = bool(self._by_label or self._lesson.predicts or self._lesson.drift)

    @property
    def model(self) -> Any:
        """The user's model, as it is now."""
        return self._model.model

    def measures(self) -> list[Any]:
        """Return the values of the metrics."""
        values = [metric.get() for metric in self._metrics.values()]
        return [value.item() if hasattr(value, "item") else value for value in values]

    # -- learning -----------------------------------------------------------------------------

    def note_use(self, number: int) -> None:
        """Note the number of the example that comes next."""
        self.used = number

    def predict(self, columns: Columns, count: int) -> list[Any]:
        """Return predictions for rows that are not learnt."""
        return self._model.predict(columns, count)

    def step(self, example: Mapping[str, Any], label: Any, notes: Notes) -> Any:
        """Predict, measure and learn one example; return the prediction."""
        model = self._model
        assert isinstance(model, OneByOne)
        try:
            prediction = model.predict_one(example) if self._asks_label else None
            if self._lesson.has_label:
                proba = model.model.predict_proba_one(example) if self._by_proba else None
                self._measure(label, prediction, proba, notes)
                model = self._model  # a drift may have begun a new one
                assert isinstance(model, OneByOne)
            for _ in range(1 if self._random is None else _poisson(self._random)):
                model.learn_one(example, label)
        except Exception as error:
            raise self._blamed(error, example, label) from error
        self.examples += 1
        notes.learnt(self, self.examples - 1)
        return prediction

    def chunk(
        self, columns: Columns, labels: Sequence[Any] | None, count: int, notes: Notes
    ) -> list[Any]:
        """Predict and measure the rows of a chunk, and then learn them all."""
        model = self._model
        try:
            predictions = model.predict(columns, count) if self._asks_label else [None] * count
            if labels is not None:
                probas: Sequence[Any] = (
                    model.predict_proba(columns, count) if self._by_proba else predictions
                )
                for label, prediction, proba in zip(labels, predictions, probas, strict=True):
                    self._measure(label, prediction, proba, notes)
            self._learn_rows(columns, labels, count)
        except Exception as error:
            first = dict(zip(model.features, (column[0] for column in columns), strict=True))
            raise self._blamed(error, first, labels[0] if labels else None) from error
        before, self.examples = self.examples, self.examples + count
        notes.learnt(self, before)
        return predictions

    def _learn_rows(self, columns: Columns, labels: Sequence[Any] | None, count: int) -> None:
        if self._random is not None:
            places = [place for place in range(count) for _ in range(_poisson(self._random))]
            columns = [[column[place] for place in places] for column in columns]
            labels = None if labels is None else [labels[place] for place in places]
            count = len(places)
        if count:
            self._model.learn(columns, labels, count)

    def _measure(self, label: Any, prediction: Any, proba: Any, notes: Notes) -> None:
        """Compare a label with what was predicted; nothing, before the model predicts anything."""
        if proba:
            for metric in self._by_proba:
                metric.update(label, proba)
        if prediction is None:
            return
        for metric in self._by_label:
            metric.update(label, prediction)
        if self._detector is None:
            return
        self._detector.update(_error(label, prediction, self._model.model))
        if self._detector.drift_detected:
            notes.drifted(self)
            if self._lesson.resets:
                self._begin_model()

    def _blamed(self, error: Exception, example: Mapping[str, Any], label: Any) -> LearnError:
        name = type(self._model.model).__name__
        labelled = f" labelled {shown(label)}" if self._lesson.has_label else ""
        first = "a chunk that begins with " if self._model.in_chunks else ""
        return LearnError(
            f"the model, a {name}, cannot learn {first}{shown(dict(example), 400)}{labelled}: "
            f"{type(error).__name__}: {error}",
            hint="filter such examples before, or name the features with features=[...]",
        )

    # -- what is saved ------------------------------------------------------------------------

    def state(self) -> tuple[Any, ...]:
        """Return all that differs between learners of one lesson, as one value."""
        metrics = list(self._metrics.values())
        parts = (self._model.model, metrics, self._detector, self._random)
        return (self.key, self.examples, self.used, self._model.has_learnt, parts)

    @classmethod
    def restore(cls, lesson: Lesson, state: tuple[Any, ...]) -> Learner:
        """Return the learner that had this state."""
        key, examples, used, has_learnt, (model, metrics, detector, generator) = state
        learner = cls(lesson, key)
        learner.examples, learner.used = examples, used
        learner._metrics = dict(zip(lesson.metrics, metrics, strict=True))
        learner._model = model_of(model, lesson.features, lesson.classes, has_learnt=has_learnt)
        learner._detector, learner._random = detector, generator
        learner._sort_metrics()
        return learner


def _error(label: Any, prediction: Any, model: Any) -> float:
    """Return what a detector of drift gets: 1 for a wrong label, the error of a number."""
    if isinstance(prediction, float) and not is_classifier(model):
        return float(abs(label - prediction))
    return float(bool(prediction != label))


def _poisson(generator: random.Random) -> int:
    """Return a number with mean 1: how often a member of an ensemble learns an example."""
    count, product = 0, generator.random()
    while product > _NONE:
        count += 1
        product *= generator.random()
    return count
