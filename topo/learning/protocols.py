"""The two kinds of models, behind one seam.

river's models learn one example at a time, a dict of features; scikit-learn's with `partial_fit`
learn an array, and one row at a time costs them five hundred times as much (294 us against 0.5 for
an SGDClassifier). So a model is asked with a *chunk*: the rows of one frame. One by one, each row
is predicted before it is learnt; in chunks, all rows are predicted before the first is learnt.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from topo.errors import LearnError

Columns = Sequence[Sequence[Any]]

_REQUIREMENTS = {"river": "river>=0.26", "sklearn": "scikit-learn>=1.4"}
"""The distributions to import where a model of these modules runs."""
_NUMBERS = {int, float, bool, type(None)}


class Model:
    """A model as a learner uses it; `model` is the user's object."""

    in_chunks = False
    has_learnt = True
    """False: the model cannot predict yet, and would raise an error."""

    def __init__(self, model: Any, features: Sequence[str]) -> None:
        self.model = model
        self.features = tuple(features)

    @abstractmethod
    def predict(self, columns: Columns, count: int) -> list[Any]:
        """Return the prediction for each row; None while there is none."""

    @abstractmethod
    def predict_proba(self, columns: Columns, count: int) -> list[Any]:
        """Return, for each row, a dict from the labels to their probabilities."""

    @abstractmethod
    def call(self, method: str, columns: Columns, count: int) -> list[Any]:
        """Return what a method of the model returns for each row."""

    @abstractmethod
    def learn(self, columns: Columns, labels: Sequence[Any] | None, count: int) -> None:
        """Learn all rows."""


class OneByOne(Model):
    """A model with `learn_one`: an example is a dict."""

    def __init__(self, model: Any, features: Sequence[str]) -> None:
        super().__init__(model, features)
        scores = not hasattr(final_step(model), "predict_one")
        self.predict_one: Callable[[Any], Any] = model.score_one if scores else model.predict_one
        self.learn_one: Callable[[Any, Any], Any] = model.learn_one
        if not _takes_label(model):
            self.learn_one = self._learn_unlabelled

    def predict(self, columns: Columns, count: int) -> list[Any]:
        return [self.predict_one(example) for example in as_dicts(self.features, columns, count)]

    def predict_proba(self, columns: Columns, count: int) -> list[Any]:
        ask = self.model.predict_proba_one
        return [ask(example) for example in as_dicts(self.features, columns, count)]

    def call(self, method: str, columns: Columns, count: int) -> list[Any]:
        ask = getattr(self.model, method)
        return [ask(example) for example in as_dicts(self.features, columns, count)]

    def learn(self, columns: Columns, labels: Sequence[Any] | None, count: int) -> None:
        examples = as_dicts(self.features, columns, count)
        for example, label in zip(examples, labels or [None] * count, strict=True):
            self.learn_one(example, label)

    def _learn_unlabelled(self, example: Any, label: Any) -> None:
        self.model.learn_one(example)


class InChunks(Model):
    """A model with `partial_fit`: the rows of a chunk are an array."""

    in_chunks = True

    def __init__(
        self, model: Any, features: Sequence[str], classes: Any, *, has_learnt: bool
    ) -> None:
        super().__init__(model, features)
        self._classes = classes
        self._takes_classes = _has_parameter(model.partial_fit, "classes")
        fitted = hasattr(model, "n_features_in_") or hasattr(model, "classes_")
        self.has_learnt = has_learnt or fitted

    def predict(self, columns: Columns, count: int) -> list[Any]:
        if not self.has_learnt:
            return [None] * count
        return _listed(self.model.predict(self.array(columns, count)))

    def predict_proba(self, columns: Columns, count: int) -> list[Any]:
        if not self.has_learnt:
            return [None] * count
        labels = _listed(self.model.classes_)
        rows = _listed(self.model.predict_proba(self.array(columns, count)))
        return [dict(zip(labels, row, strict=True)) for row in rows]

    def call(self, method: str, columns: Columns, count: int) -> list[Any]:
        return _listed(getattr(self.model, method)(self.array(columns, count)))

    def learn(self, columns: Columns, labels: Sequence[Any] | None, count: int) -> None:
        array = self.array(columns, count)
        if labels is None:
            self.model.partial_fit(array)
        elif self._takes_classes and not self.has_learnt:
            self.model.partial_fit(array, np.asarray(labels), classes=self._all_classes(labels))
        else:
            self.model.partial_fit(array, np.asarray(labels))
        self.has_learnt = True

    def _all_classes(self, labels: Sequence[Any]) -> Any:
        if self._classes is not None:
            return np.asarray(self._classes)
        if {type(label) for label in labels} <= {bool}:
            return np.asarray([False, True])
        raise LearnError(
            f"{type(self.model).__name__} must know all labels before it learns the first one",
            hint="write LearnBolt(..., classes=['no', 'yes'])",
        )

    def array(self, columns: Columns, count: int) -> Any:
        """Return the rows as an array: of floats, if all values are numbers or None."""
        if all(set(map(type, column)) <= _NUMBERS for column in columns):
            table = np.empty((count, len(columns)))
        else:
            table = np.empty((count, len(columns)), dtype=object)
        for place, column in enumerate(columns):
            table[:, place] = column
        return table


def as_dicts(names: Sequence[str], columns: Columns, count: int) -> Iterable[dict[str, Any]]:
    """Return the rows as dicts of their features."""
    if not names:
        return ({} for _ in range(count))
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def model_of(
    model: Any, features: Sequence[str], classes: Any = None, *, has_learnt: bool = False
) -> OneByOne | InChunks:
    """Return a user's model behind the seam; raise a LearnError if it has neither protocol."""
    problem = protocol_problem(model)
    if problem:
        raise LearnError(problem, hint="give it learn_one and predict_one, or partial_fit")
    if hasattr(model, "learn_one"):
        return OneByOne(model, features)
    return InChunks(model, features, classes, has_learnt=has_learnt)


def protocol_problem(model: Any) -> str:
    """Return what a model lacks, or ""."""
    name = model.__name__ if isinstance(model, type) else type(model).__name__
    if isinstance(model, type):
        return f"the model is the class {name}; write {name}()"
    if hasattr(model, "learn_one"):
        final = final_step(model)
        if hasattr(final, "predict_one") or hasattr(final, "score_one"):
            return ""
        return f"the model, a {name}, learns and has neither predict_one nor score_one"
    if hasattr(model, "partial_fit"):
        return "" if hasattr(model, "predict") else f"the model, a {name}, has no predict"
    return f"the model, a {name}, has neither learn_one nor partial_fit"


def is_classifier(model: Any) -> bool:
    """Return True if a model predicts one of several labels."""
    final = final_step(model)
    if hasattr(final, "predict_proba_one") or hasattr(final, "classes_"):
        return True
    return hasattr(model, "partial_fit") and _has_parameter(model.partial_fit, "classes")


def needs_label(model: Any) -> bool:
    """Return True if a model that learns one by one cannot learn without a label."""
    learn_one = getattr(final_step(model), "learn_one", None)
    required = [p for p in _by_place(learn_one) if p.default is inspect.Parameter.empty]
    return len(required) > 1


def final_step(model: Any) -> Any:
    """Return the last step of a pipeline, which has its kind; another model itself."""
    steps = getattr(model, "steps", None)
    if isinstance(steps, Mapping) and steps:
        return list(steps.values())[-1]
    return model


def requirements_of(*objects: Any) -> tuple[str, ...]:
    """Return the distributions that must be installed where these objects run."""
    modules = {type(thing).__module__.partition(".")[0] for thing in objects}
    return tuple(_REQUIREMENTS[name] for name in sorted(modules) if name in _REQUIREMENTS)


def _has_parameter(function: Any, name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # of a compiled class without a signature
        return False


def _takes_label(model: Any) -> bool:
    """Return True if `learn_one` takes a label after the features."""
    try:
        kinds = {p.kind for p in inspect.signature(model.learn_one).parameters.values()}
    except (TypeError, ValueError):  # of a compiled class without a signature
        return True
    return len(_by_place(model.learn_one)) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds


def _by_place(function: Any) -> list[inspect.Parameter]:
    """Return the parameters that are given by place; none, if a function does not tell."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [parameter for parameter in parameters if parameter.kind in by_place]


def _listed(values: Any) -> list[Any]:
    """Return an array as a list of plain values, which travel and are saved as they are."""
    listed: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    return listed
