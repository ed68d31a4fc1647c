"""Components written for Storm in Java, for streamparse or for asyncio: told what is meant here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.doubles import Words
from topo import BasicBolt, Bolt, InvalidTopologyError, Spout, TopologyBuilder, Tuple


class HasProcess(Bolt):
    def process(self, tup: Tuple) -> None: ...


class HasInitialize(BasicBolt):
    def initialize(self, conf: Any, context: Any) -> None: ...

    def execute(self, tup: Tuple) -> None: ...


class HasNextTuple(Spout):
    def nextTuple(self) -> None: ...


class HasDeclare(BasicBolt):
    def declareOutputFields(self, declarer: Any) -> None: ...

    def execute(self, tup: Tuple) -> None: ...


class HasOutput(BasicBolt):
    output = ("a",)

    def execute(self, tup: Tuple) -> None: ...


class StormsExecute(BasicBolt):
    def execute(self, tup: Tuple, collector: Any) -> None: ...  # type: ignore[override]


class ShortPrepare(Bolt):
    def prepare(self, conf: Any, context: Any) -> None: ...  # type: ignore[override]

    def execute(self, tup: Tuple) -> None: ...


class Empty(Bolt):
    pass


class EmptySpout(Spout):
    pass


class Generator(BasicBolt):
    def execute(self, tup: Tuple) -> Any:
        yield [1]


class Coroutine(Spout):
    async def next_tuple(self) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("component", "code", "message", "hint"),
    [
        (HasProcess(), "foreign-name", "'process', and acks by hand", "it is 'execute' here"),
        (
            HasInitialize(),
            "foreign-name",
            "'initialize', streamparse's name",
            "'prepare(self, conf",
        ),
        (HasNextTuple(), "foreign-name", "has 'nextTuple'", "it is 'next_tuple' here"),
        (HasDeclare(), "foreign-name", "'declareOutputFields'", "'declare_output_fields' here"),
        (HasOutput(), "near-miss", "an attribute 'output'", "the declaration is 'outputs'"),
        (StormsExecute(), "hook-signature", "execute takes 2 arguments", "is a BasicBolt here"),
        (ShortPrepare(), "hook-signature", "prepare takes 2 arguments", "conf, context, collector"),
        (Empty(), "missing-hook", "does not override 'execute'", "write def execute"),
        (EmptySpout(), "missing-hook", "does not override 'next_tuple'", "write def next_tuple"),
        (Generator(), "hook-generator", "execute is a generator", "@bolt"),
        (Coroutine(), "hook-coroutine", "next_tuple is a coroutine", "docs/guide/asyncio.md"),
    ],
)
def test_a_component_written_for_something_else_is_told_what_is_meant(
    component: Any, code: str, message: str, hint: str
) -> None:
    builder = TopologyBuilder()
    if isinstance(component, Spout):
        builder.set_spout("x", component)
    else:
        builder.set_spout("words", Words())
        builder.set_bolt("x", component).shuffle_grouping("words")
    with pytest.raises(InvalidTopologyError) as refused:
        builder.create_topology()
    (problem,) = refused.value.problems
    assert problem.code == code
    assert "'x'" in problem.where
    assert message in problem.message
    assert hint in problem.hint
