"""Components: their outputs, `@bolt`, ticks, and which hook is called when."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from tests.wiring import Fed, line
from topo import (
    BasicBolt,
    BasicOutputCollector,
    Bolt,
    ComponentError,
    Fields,
    InvalidTopologyError,
    Spout,
    StatefulBolt,
    Stream,
    TopoError,
    Tuple,
    UncaughtError,
    bolt,
)
from topo.components import OutputFieldsDeclarer
from topo.testing import complete_topology, make_tuple, run_bolt


@bolt(outputs=("word",))
def split(tup: Tuple) -> Iterator[list[str]]:
    """Splits."""
    for word in tup[0].split():
        yield [word]


def streams_of(component: Any) -> dict[str, tuple[tuple[str, ...], bool]]:
    topology = line(component) if isinstance(component, Spout) else line(Numbers(1), component)
    outputs = list(topology.components.values())[0 if not isinstance(component, Spout) else -1]
    return {output.name: (output.fields, output.direct) for output in outputs.outputs}


class Quiet(Bolt):
    def execute(self, tup: Tuple) -> None:
        self.ack(tup)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ((), {}),
        ("word", {"default": (("word",), False)}),
        (["a", "b"], {"default": (("a", "b"), False)}),
        (Fields("a"), {"default": (("a",), False)}),
        (
            {"default": "a", "rejects": Stream(("line", "why"), direct=True), "empty": ()},
            {"default": (("a",), False), "rejects": (("line", "why"), True), "empty": ((), False)},
        ),
    ],
)
def test_outputs_as_an_attribute(outputs: Any, expected: Any) -> None:
    component = Quiet()
    component.outputs = outputs  # from the instance, as __init__ may set it
    assert streams_of(component) == expected


def test_outputs_by_declarer() -> None:
    class Declares(Quiet):
        def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
            declarer.declare(Fields("word"))
            declarer.declare_stream("rejects", Fields("line"), direct=True)
            declarer.declare_stream("more", "a", "b")

    assert streams_of(Declares()) == {
        "default": (("word",), False),
        "rejects": (("line",), True),
        "more": (("a", "b"), False),
    }


def test_a_stream_is_a_value() -> None:
    assert Stream("a") == Stream(["a"]) != Stream("a", direct=True)
    assert len({Stream("a"), Stream(("a",))}) == 1
    assert repr(Stream(("a",), direct=True)) == "Stream(('a',), direct=True)"


def test_a_stream_declared_twice_is_a_problem() -> None:
    class Twice(Quiet):
        def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
            declarer.declare("a")
            declarer.declare("b")

    with pytest.raises(InvalidTopologyError, match="stream 'default' is declared twice"):
        line(Numbers(1), Twice())


# -- @bolt --------------------------------------------------------------------------------------


def test_a_function_that_yields_is_a_bolt() -> None:
    fed = Fed(split).feed("the cow", "jumped")
    assert sorted(fed.out()) == ["cow", "jumped", "the"]
    assert sorted(fed.feeder.acked) == ["jumped", "the cow"]


def test_the_decorated_function_stays_what_it_was() -> None:
    assert split.__name__ == "split"  # type: ignore[attr-defined]
    assert split.__doc__ == "Splits."
    assert list(split(make_tuple(["a b"]))) == [["a"], ["b"]]
    assert pickle.loads(pickle.dumps(split)) is split


def test_a_function_may_return_an_iterator_or_none() -> None:
    @bolt(outputs="x")
    def twice(tup: Tuple) -> Iterator[list[int]] | None:
        return iter([[tup.x], [tup.x]]) if tup.x else None

    fed = Fed(twice).feed(0, 1)
    assert fed.out() == [1, 1]
    assert sorted(fed.feeder.acked) == [0, 1]


def test_a_function_with_a_second_parameter_gets_a_collector() -> None:
    @bolt(outputs={"default": "x", "odd": "x"})
    def sort(tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit([tup.x], stream="odd" if tup.x % 2 else "default")

    fed = Fed(sort).feed(1, 2, 3)
    assert (fed.out(), sorted(fed.out(stream="odd"))) == ([2], [1, 3])


def test_a_function_may_do_both() -> None:
    @bolt(outputs={"default": "x", "odd": "x"})
    def both(tup: Tuple, collector: BasicOutputCollector) -> Iterator[list[int]]:
        collector.emit([tup.x], stream="odd")
        yield [tup.x + 1]

    fed = Fed(both).feed(1)
    assert (fed.out(), fed.out(stream="odd")) == ([2], [1])


@pytest.mark.parametrize("made", [[[1]], (1,), "text", {"a": 1}, 3, [[]]])
def test_a_function_that_returns_a_list_is_an_error(made: Any) -> None:
    @bolt(outputs="x")
    def wrong(tup: Tuple) -> Any:
        return made

    with pytest.raises(UncaughtError, match=r"@bolt function 'wrong' returned .*; yield value li"):
        Fed(wrong).feed(1)
    with pytest.raises(ComponentError):
        run_bolt(wrong, [make_tuple([1])])


def test_bolt_refuses_what_it_cannot_call() -> None:
    with pytest.raises(ComponentError, match="@bolt needs its outputs"):
        bolt(lambda tup: None)  # type: ignore[arg-type]
    with pytest.raises(ComponentError, match=r"takes 3 parameters .*write def name"):
        bolt(outputs="x")(lambda tup, collector, more: None)
    with pytest.raises(ComponentError, match="takes 0 parameters"):
        bolt(outputs="x")(lambda: None)

    async def coroutine(tup: Tuple) -> None: ...

    with pytest.raises(ComponentError, match=r"'coroutine' is a coroutine .*; write it with def"):
        bolt(outputs="x")(coroutine)


def test_ticks_do_not_reach_a_function() -> None:
    @bolt(outputs="x")
    def never(tup: Tuple) -> Iterator[list[int]]:
        yield [int(tup.is_tick)]

    fed = Fed(never, conf={"topology.tick.tuple.freq.secs": 1}).feed(5)
    fed.cluster.advance(3)
    assert fed.out() == [0]


# -- hooks --------------------------------------------------------------------------------------


def test_no_super_call_is_needed_and_hooks_come_in_order() -> None:
    class Lazy(Bolt):
        outputs = ("x",)

        def __init__(self) -> None:
            self.mine = 1

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            assert self.collector is collector
            assert self.context is context
            self.collector = collector

        def execute(self, tup: Tuple) -> None:
            self.collector.emit([self.mine], anchors=tup)
            self.collector.ack(tup)

    assert Fed(Lazy()).feed(1).out() == [1]


def test_the_state_is_there_in_init_state_and_prepare_comes_before() -> None:
    seen: list[Any] = []

    class Watches(StatefulBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            seen.append("prepare")

        def init_state(self, state: Any) -> None:
            seen.append(state is self.state)

        def restored(self) -> None:
            seen.append("restored")

        def execute(self, tup: Tuple) -> None:
            self.ack(tup)

        def cleanup(self) -> None:
            seen.append("cleanup")

    fed = Fed(Watches()).feed(1)
    fed.run.kill()
    assert seen == ["prepare", True, "restored", "cleanup"]


def test_emit_before_the_start_says_so() -> None:
    with pytest.raises(TopoError, match=r"Quiet has no collector yet; emit and ack from open"):
        Quiet().ack(make_tuple([1]))


def test_an_overridden_call_is_used() -> None:
    class Doubles(BasicBolt):
        outputs = ("x",)

        def emit(self, values: Any, **named: Any) -> Any:
            return super().emit([values[0] * 2], **named)

        def execute(self, tup: Tuple) -> None:
            self.emit([tup.x])

    assert Fed(Doubles()).feed(2).out() == [4]


class Ticks(Bolt):
    outputs = ("what",)

    def get_component_configuration(self) -> dict[str, Any]:
        return {"topology.tick.tuple.freq.secs": 10}

    def execute(self, tup: Tuple) -> None:
        self.emit([f"execute {tup.is_tick}"], anchors=tup)
        self.ack(tup)

    def on_tick(self, tup: Tuple) -> None:
        self.emit([f"on_tick {tup.values} at {self.context.now()}"])


def test_on_tick_gets_the_ticks_and_execute_the_rest() -> None:
    fed = Fed(Ticks()).feed(1)
    fed.cluster.advance(25)
    assert fed.out() == ["execute False", "on_tick [10] at 10", "on_tick [10] at 20"]


def test_without_on_tick_execute_gets_the_ticks_even_in_a_basic_bolt() -> None:
    class Basic(BasicBolt):
        outputs = ("tick",)

        def execute(self, tup: Tuple) -> None:
            self.emit([tup.is_tick])

    fed = Fed(Basic(), conf={"topology.tick.tuple.freq.secs": 1}).feed(1)
    fed.cluster.advance(2)
    assert fed.out() == [False, True, True]


@pytest.mark.parametrize("secs", [0.1, 0.3, 1 / 3, 0.7, 2.5, 49 / 3])
def test_ticks_of_any_period_come_once_each(secs: float) -> None:
    fed = Fed(Ticks(), conf={"b1/topology.tick.tuple.freq.secs": secs}).feed(1)
    fed.cluster.advance(secs * 100.5)
    assert len(fed.out()) == 101


def test_the_last_tick_comes_level_by_level() -> None:
    class Flushes(BasicBolt):
        """Emits what it has got when the last tick comes."""

        outputs = ("got",)

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.got = 0

        def get_component_configuration(self) -> dict[str, Any]:
            return {"topology.tick.tuple.freq.secs": 1000}

        def execute(self, tup: Tuple) -> None:
            self.got += 1

        def on_tick(self, tup: Tuple) -> None:
            self.emit([self.got])

    result = complete_topology(line(Numbers(3), Flushes(), Flushes(), Flushes()))
    assert [result.tuples(f"b{n}") for n in (1, 2, 3)] == [[[3]], [[1]], [[1]]]


def test_pre_commit_ends_each_batch_the_task_worked_in_and_may_emit_and_ack() -> None:
    class Writes(Bolt):
        outputs = ("batch", "count")

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.held: list[Tuple] = []

        def execute(self, tup: Tuple) -> None:
            self.held.append(tup)

        def pre_commit(self, batch_id: int) -> None:
            self.emit([batch_id, len(self.held)], anchors=self.held)
            for tup in self.held:
                self.ack(tup)
            self.held = []

    fed = Fed(Writes(), Quiet()).feed(1, 2)
    fed.feed(3)
    fed.cluster.advance(5)
    assert sorted(fed.feeder.acked) == [1, 2, 3]
    batches = [batch for batch, _ in fed.run.tuples("b1")]
    assert batches == sorted(set(batches))
    assert sum(count for _, count in fed.run.tuples("b1")) == 3
