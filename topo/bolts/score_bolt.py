"""`ScoreBolt`: predictions by models that a `LearnBolt` elsewhere in the topology publishes.

    builder.set_bolt("score", ScoreBolt("learn"), 8) \\
        .shuffle_grouping("requests").all_grouping("learn", "model")

Learning is the work of one task for each key; predicting is that of as many as one likes. The last
model of each key is committed state. In a batch, models come before events: a published model is
used in the next batch at the latest, whatever order the frames of that batch came in.

A published model is a pickle, and reading one runs what is in it. So models are taken from a
`LearnBolt` of the same topology only, whose frames nobody else can write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from topo.bolts.learn_bolt import LearnBolt
from topo.components import OutputFieldsDeclarer
from topo.errors import LearnError, Problem
from topo.learning.learn import MODEL
from topo.learning.protocols import (
    protocol_problem,
    requirements_of,
)
from topo.learning.score import ScoreOperator
from topo.operators.inputs import key_fields, missing_fields
from topo.timed import InputFields, Operator, OperatorTask, Rows, TimedBolt
from topo.tuples import Fields

_LEARN_BOLT = f"{LearnBolt.__module__}.{LearnBolt.__qualname__}"


class ScoreBolt(TimedBolt):
    """A bolt that predicts each tuple with the models of a `LearnBolt`, or with a given model.

    `models` names the `LearnBolt`, whose stream `model` is read by all grouping, or is a model. The
    features are those that the model has learnt, unless `features` names them. With `key`, fields
    of the events, an event is predicted by its key's model. The output has the fields of the event
    and `output`, what `method` returns; None while there is no model. Of an ensemble's members,
    predictions of labels are put to the vote, numbers and probabilities have their mean.
    """

    transient = ("models",)

    def __init__(
        self,
        models: Any = "learn",
        *,
        features: str | Iterable[str] | None = None,
        key: str | Iterable[str] | None = None,
        method: str = "predict_one",
        output: str = "prediction",
    ) -> None:
        self.models = models
        self.learner = models if isinstance(models, str) else None
        """The component that learns; None if the model is given."""
        self.features = None if features is None else tuple(Fields(features))
        self.key = key_fields(key)
        self.method = method
        self.output = output
        self.events: tuple[InputFields, ...] = ()
        if self.learner is not None:
            return
        problem = protocol_problem(models)
        if problem:
            hint = 'write ScoreBolt("learn"), the name of a LearnBolt, or give a model'
            raise LearnError(f"ScoreBolt: {problem}", hint=hint, code="learn-model")
        if self.key:
            raise LearnError("ScoreBolt: a given model has no key", hint="take key away")
        self.requires = requirements_of(models)

    # -- what it declares ---------------------------------------------------------------------

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        self.events = tuple(read for read in inputs if not self.is_model(read))

    def is_model(self, read: InputFields | Rows) -> bool:
        """Return True if models come on this stream."""
        return read.component == self.learner and read.stream == MODEL

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        if self.events:
            declarer.declare(*self.events[0].fields, self.output)

    def describe_time(self) -> str:
        if self.learner is None:
            return f"{self.method} of a {type(self.models).__name__}"
        return f"{self.method} of the models of {self.learner!r}"

    # -- checks -------------------------------------------------------------------------------

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        yield from self._model_problems(where, inputs)
        if not self.events:
            text = f"{where} reads no events"
            yield Problem("learn-input", where, text, 'write .shuffle_grouping("requests")')
            return
        first = self.events[0]
        for read in self.events:
            names = (*(self.features or ()), *self.key)
            yield from missing_fields(where, read, names, "learn-input", "")
            if read.fields != first.fields:
                text = f"{where} emits the fields of its input, and those of {first.component!r}"
                text += f" and {read.component!r} differ"
                yield Problem("learn-input", where, text, "emit the same fields in both")

    def _model_problems(self, where: str, inputs: Sequence[InputFields]) -> Iterable[Problem]:
        if self.learner is None:
            return
        line = f"write .all_grouping({self.learner!r}, {MODEL!r})"
        read = next((read for read in inputs if self.is_model(read)), None)
        if read is None:
            text = f"{where} does not read the models of {self.learner!r}"
            hint = f"{line}; the LearnBolt publishes them with publish=..."
            yield Problem("learn-model", where, text, hint)
        elif _LEARN_BOLT not in read.classes:
            text = f"{where} reads models of {self.learner!r}, which is no LearnBolt"
            hint = "a model from elsewhere could run any code: it is taken from a LearnBolt only"
            yield Problem("learn-model", where, text, hint)
        elif read.grouping not in ("all", "global"):
            text = f"{where} reads the models of {self.learner!r} by {read.grouping} grouping"
            yield Problem("learn-model", where, text, line)
        elif len(read.fields) - 3 != len(self.key):
            names = ", ".join(read.fields[:-3]) or "no key"
            text = f"{where}: its models have {names}, and key has {len(self.key)} fields"
            yield Problem("learn-key", where, text, "give both bolts the same key")

    def operator(self, task: OperatorTask) -> Operator:
        return ScoreOperator(self, task)
