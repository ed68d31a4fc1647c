"""The operator of a `ScoreBolt`: the models of a task, which predict each tuple."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from topo.errors import LearnError, shown
from topo.learning.protocols import (
    Columns,
    InChunks,
    OneByOne,
    is_classifier,
    model_of,
)
from topo.storage.saving import SavedMapping, with_one_nan
from topo.timed import Clock, InputFields, Operator, OperatorTask, Rows
from topo.wire.column import load

_CHUNK_METHODS = {
    "predict_one": "predict",
    "predict_proba_one": "predict_proba",
    "score_one": "score_samples",
}
"""The methods of models that learn in chunks, by river's names."""


class ScoreDeclaration(Protocol):
    """What a `ScoreBolt` declares, as far as its operator has to know it."""

    models: Any
    learner: str | None
    features: tuple[str, ...] | None
    key: tuple[str, ...]
    method: str
    events: tuple[InputFields, ...]

    def is_model(self, read: InputFields | Rows) -> bool:
        """Return True if models come on this stream."""


class ScoreOperator(Operator):
    """The models of one task."""

    def __init__(self, bolt: ScoreDeclaration, task: OperatorTask) -> None:
        self._bolt = bolt
        self._task = task
        self._context = task.component.context
        self._log = SavedMapping("models", task.owner, "the model of {key!r}")
        self._published: dict[Any, tuple[Any, bytes]] = {}  # by (key, member)
        self._members: dict[Any, dict[Any, OneByOne | InChunks | None]] = {}  # by key
        self._touched: dict[Any, None] = {}
        self._waiting: list[Rows] = []
        self._ready: OneByOne | InChunks | None = None
        if bolt.learner is None:
            features = bolt.features or bolt.events[0].fields
            self._ready = model_of(bolt.models, features, has_learnt=True)

    # -- a batch ------------------------------------------------------------------------------

    def rows(self, rows: Rows) -> None:
        if not self._bolt.is_model(rows):
            self._waiting.append(rows)
            return
        *keys, versions, models, members = rows.columns
        by_row = zip(_row_keys(keys, rows.count), members, versions, models, strict=True)
        for key, member, version, model in by_row:
            self._touched[key, member] = None
            if model is None:
                self._published.pop((key, member), None)
                self._members.get(key, {}).pop(member, None)
            else:
                self._published[key, member] = (version, model)
                self._members.setdefault(key, {})[member] = None
        self.state_rows = len(self._published)

    def advance(self, clock: Clock) -> int:
        waiting, self._waiting = self._waiting, []
        for rows in waiting:
            predictions = self._predictions(rows)
            missing = sum(prediction is None for prediction in predictions)
            if missing:
                self._context.counter("unscored", missing)
            values = zip(*rows.columns, predictions, strict=True)
            self._task.emit([list(row) for row in values])
        return len(waiting)

    def _predictions(self, rows: Rows) -> list[Any]:
        if self._ready is not None:
            return self._ask(self._ready, rows, None)
        if not self._bolt.key:
            return self._by_members((), rows, None)
        columns = [rows.columns[rows.fields.index(name)] for name in self._bolt.key]
        places: dict[Any, list[int]] = {}
        for place, key in enumerate(_row_keys(columns, rows.count)):
            places.setdefault(key, []).append(place)
        predictions: list[Any] = [None] * rows.count
        for key, own in places.items():
            for place, prediction in zip(own, self._by_members(key, rows, own), strict=True):
                predictions[place] = prediction
        return predictions

    def _by_members(self, key: Any, rows: Rows, places: Sequence[int] | None) -> list[Any]:
        """Return what the models of a key agree on for some rows."""
        count = rows.count if places is None else len(places)
        models = self._models(key)
        if not models:
            return [None] * count
        votes = [self._ask(model, rows, places) for model in models]
        if len(votes) == 1:
            return votes[0]
        by_label = is_classifier(models[0].model)
        return [_agreed(row, by_label) for row in zip(*votes, strict=True)]

    def _models(self, key: Any) -> list[OneByOne | InChunks]:
        """Return the models of a key, unpickled when they are first asked."""
        members = self._members.get(key)
        if members is None:
            return []
        models = []
        for member in sorted(members):
            model = members[member]
            if model is None:
                features, learnt = load(self._published[key, member][1])
                model = model_of(learnt, self._bolt.features or features, has_learnt=True)
                members[member] = model
            models.append(model)
        return models

    def _ask(
        self, model: OneByOne | InChunks, rows: Rows, places: Sequence[int] | None
    ) -> list[Any]:
        columns: Columns
        try:
            columns = [rows.columns[rows.fields.index(name)] for name in model.features]
        except ValueError:
            lacking = [name for name in model.features if name not in rows.fields]
            raise LearnError(
                f"{self._task.owner}: the model has learnt {', '.join(map(repr, lacking))}, no "
                f"field of {rows.component!r}",
                hint="name the features with LearnBolt(features=[...]), and emit them here",
            ) from None
        count = rows.count
        if places is not None:
            columns = [[column[place] for place in places] for column in columns]
            count = len(places)
        try:
            return self._called(model, columns, count)
        except Exception as error:
            first = dict(zip(model.features, (column[0] for column in columns), strict=True))
            chunk = "rows that begin with " if count > 1 else ""
            raise LearnError(
                f"{self._task.owner}: {self._bolt.method} of a {type(model.model).__name__} raised "
                f"{type(error).__name__} for {chunk}{shown(first, 400)}: {error}",
                hint="filter such events before, or name the features with features=[...]",
            ) from error

    def _called(self, model: OneByOne | InChunks, columns: Columns, count: int) -> list[Any]:
        method = self._bolt.method
        if isinstance(model, OneByOne):
            return (
                model.predict(columns, count)
                if method == "predict_one"
                else model.call(method, columns, count)
            )
        method = _CHUNK_METHODS.get(method, method)
        if method == "predict_proba":
            return model.predict_proba(columns, count)
        return model.call(method, columns, count)

    # -- state --------------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        self._published = self._log.load(saved)
        for key, member in self._published:
            self._members.setdefault(key, {})[member] = None
        self.state_rows = len(self._published)

    def save(self, changes: Any) -> None:
        touched, self._touched = self._touched, {}
        self._log.save(self._published, touched, changes)


def _row_keys(columns: Sequence[Sequence[Any]], count: int) -> Iterable[Any]:
    """Return the keys of the rows as tuples, with the one NaN of this process."""
    if not columns:
        return [()] * count
    return map(with_one_nan, zip(*columns, strict=True))


def _agreed(votes: Sequence[Any], by_label: bool) -> Any:
    """Return what the members of an ensemble say together; None if none of them says anything."""
    votes = [vote for vote in votes if vote is not None and vote != {}]
    if not votes:
        return None
    if isinstance(votes[0], dict):
        labels = {label: None for vote in votes for label in vote}
        return {label: sum(v.get(label, 0.0) for v in votes) / len(votes) for label in labels}
    if not by_label and all(isinstance(vote, int | float) for vote in votes):
        return sum(votes) / len(votes)
    return Counter(votes).most_common(1)[0][0]
