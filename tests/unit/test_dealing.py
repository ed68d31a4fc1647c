"""A tuple is dealt once, to the task its value belongs to, and its receivers share nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.lives import Life
from tests.wiring import Fed, line
from topo import (
    BasicBolt,
    Bolt,
    CustomStreamGrouping,
    EmitError,
    FailTuple,
    Spout,
    TopoError,
    TopologyBuilder,
    Tuple,
    UncaughtError,
    bolt,
)
from topo.engine.inline.run import InlineRun
from topo.routing.bulk_hashing import FEW_VALUES, ColumnHasher
from topo.routing.groupers import ByFields, Rows, RowsOf
from topo.routing.hashing import stable_hash
from topo.runtime.slot import Batch, SlotTasks, TaskEnvironment, full_conf
from topo.testing import FeederSpout, TestCluster, complete_topology
from topo.topology.layout import TaskLayout
from topo.wire.arrow import ArrowColumn


class Passes(BasicBolt):
    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]])


class Fails(CustomStreamGrouping):
    """Chooses the first task, but once raises."""

    def prepare(self, context: Any, stream: Any, target_tasks: Sequence[int]) -> None:
        self.tasks, self.raised = list(target_tasks), False

    def choose_tasks(self, source_task: int, values: list[Any]) -> list[int]:
        if values[0] == 2 and not self.raised:
            self.raised = True
            raise ValueError("no task for 2")
        return self.tasks[:1]


@pytest.mark.parametrize("tracked", [1, 0])
@pytest.mark.parametrize("policy", ["stop", "fail"])
def test_a_grouping_that_raises_out_of_an_emit_stops_the_topology_and_deals_nothing_twice(
    policy: str, tracked: int
) -> None:
    class AsksAndGoesOn(BasicBolt):
        outputs = ("x",)

        def execute(self, tup: Tuple) -> None:
            with contextlib.suppress(UncaughtError):
                self.emit([tup[0]], task_ids=True)

    feeder = FeederSpout(["x"])
    builder = TopologyBuilder()
    builder.set_spout("s", feeder)
    builder.set_bolt("asks", AsksAndGoesOn()).global_grouping("s")
    builder.set_bolt("a", Passes()).shuffle_grouping("asks")
    builder.set_bolt("b", Passes()).custom_grouping("asks", Fails())
    conf = {"topology.uncaught.error": policy, "topology.acker.executors": tracked}
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology(), conf)
        for value in range(5):
            feeder.feed([value], msg_id=value)
        with pytest.raises(UncaughtError, match=r"custom grouping Fails of 'b', emitted \[2\]"):
            run.settle()
        assert run.status == "FAILED"
        assert run.tuples("a") == run.tuples("b") == []


# -- fields ----------------------------------------------------------------------------------------


def hashes(column: list[Any]) -> list[int]:
    made = [int(one) for one in ColumnHasher().hashes(column)]
    times = FEW_VALUES // max(1, len(column)) + 1  # many are hashed at once, a few one by one
    assert ColumnHasher().hashes([*column] * times).tolist() == made * times
    return made


EDGES = [2**61, 2**62, 2**63, 2**64]
INTS = [
    0,
    -1,
    -2,
    *(sign * edge + by for edge in EDGES for sign in (1, -1) for by in (-2, -1, 0, 1)),
]


@pytest.mark.parametrize("number", INTS)
def test_a_number_has_one_hash_in_every_column(number: int) -> None:
    assert hashes([number, 5])[0] == hashes([number, None])[0] == stable_hash(number)


def hashes_of_array(array: Any) -> list[int]:
    made: list[int] = ColumnHasher().hashes(ArrowColumn(array)).tolist()
    return made


ARRAYS = [
    ["a", "", "b\0c", "\0", "ä€🙂", "b" * 64, "b" * 65, "é" * 40],
    ["", ""],
    ["x" * 70_000, "y", "z" * 80_000],
    ["word", None, "other"],
    [number for number in INTS if abs(number) < 2**61 - 1],
    [number for number in INTS if -(2**63) <= number < 2**63],
    [1, None, -1],
    [1.0, 2.5, -0.0],
    [True, False],
    [b"a", b""],
    [],
]


@pytest.mark.parametrize("values", ARRAYS)
def test_a_value_has_one_hash_in_an_array_and_in_a_list(values: list[Any]) -> None:
    array = pa.array(values)
    expected = [stable_hash(value) for value in values]
    assert hashes_of_array(array) == expected
    assert hashes_of_array(pa.concat_arrays([array, array])[1:]) == (expected * 2)[1:]
    assert hashes_of_array(array.dictionary_encode()) == expected
    if pa.types.is_string(array.type):
        assert hashes_of_array(array.cast(pa.large_string())) == expected


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"])
def test_a_number_has_one_hash_in_arrays_of_any_width(kind: str) -> None:
    highest = 2**64 - 1 if kind == "uint64" else 100
    values = [0, 1, 100, highest]
    assert hashes_of_array(pa.array(values, kind)) == [stable_hash(value) for value in values]


@dataclasses.dataclass(frozen=True, eq=False)
class NoCase:
    """Is equal to others in a way that nobody can see from its parts."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoCase) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


class Keyed(NoCase):
    def __topo_key__(self) -> str:
        return self.name.lower()


def test_a_key_with_an_equality_of_its_own_is_refused_by_name() -> None:
    with pytest.raises(EmitError, match=r"a .*NoCase cannot be grouped by.*__topo_key__"):
        stable_hash(NoCase("Ann"))
    with pytest.raises(EmitError, match=r"NoCase cannot be grouped by"):
        stable_hash([{"deep": NoCase("Ann")}])


def test_it_is_not_refused_where_it_brings_a_key() -> None:
    assert stable_hash(Keyed("Ann")) == stable_hash(Keyed("ANN")) != stable_hash(Keyed("Bob"))


def test_a_refused_key_stops_the_topology_with_the_grouping_and_the_tuple() -> None:
    for group in ("fields_grouping", "partial_key_grouping"):
        feeder = FeederSpout(["x"])
        builder = TopologyBuilder()
        builder.set_spout("s", feeder)
        getattr(builder.set_bolt("b", Passes(), 3), group)("s", ["x"])
        with TestCluster() as cluster:
            run = cluster.submit_topology("t", builder.create_topology())
            feeder.feed([NoCase("Ann")])
            with pytest.raises(UncaughtError, match=r"'s'.* grouping of 'b', emitted \[NoCase"):
                run.settle()


U1 = uuid.uuid1()
PRODUCERS = [
    ([U1, 1], [uuid.UUID(str(U1)), U1]),
    ([Keyed("ANN"), Keyed("Ann")], [Keyed("Ann"), Keyed("ANN")]),
    ([1.0, True, None], [True, 1, None]),
    ([(1, "a"), None], [(True, "a"), (1.0, "a")]),
]


@pytest.mark.parametrize(("first", "second"), PRODUCERS)
def test_what_one_producer_saw_before_makes_no_difference(
    first: list[Any], second: list[Any]
) -> None:
    one, other = ColumnHasher(), ColumnHasher()
    one.hashes(first)
    assert one.hashes(second).tolist() == other.hashes(second).tolist() == hashes(second)


@pytest.mark.parametrize(
    "value",
    [
        pd.NaT,
        decimal.Decimal("sNaN"),
        decimal.Decimal("NaN"),
        np.datetime64("NaT", "s"),
        float("nan"),
    ],
    ids=str,
)
def test_what_is_no_value_has_a_hash(value: Any) -> None:
    assert hashes([value, 1])[0] == stable_hash(value)


EQUAL = [
    (pd.Timedelta(1, "s"), dt.timedelta(seconds=1)),
    (pd.Timestamp("2020-01-01 10:00"), dt.datetime(2020, 1, 1, 10)),
    (dt.time(1, 30, fold=0), dt.time(1, 30, fold=1)),
]


@pytest.mark.parametrize(("one", "other"), EQUAL, ids=str)
def test_equal_times_of_other_types_hash_alike(one: Any, other: Any) -> None:
    assert one == other
    assert stable_hash(one) == stable_hash(other)


def test_a_range_is_no_walk_through_it() -> None:
    huge = range(0, 10**30, 7)
    assert stable_hash(huge) == stable_hash(range(0, huge[-1] + 1, 7))
    assert stable_hash(huge) != stable_hash(range(7, 10**30, 7))
    assert stable_hash(range(10**18, 0, -1)) != stable_hash(range(10**18))
    for length in (0, 1, 2, 4095, 4096, 4097, 4098):
        for step in (-3, 1, 5):
            ranges = {
                stable_hash(range(2, 2 + length * step - slack * (1 if step > 0 else -1), step))
                for slack in range(abs(step) if length else 1)
            }
            assert len(ranges) == 1, "equal ranges, of one hash"


def test_large_keys_are_not_remembered() -> None:
    hasher = ColumnHasher()
    hasher.hashes([b"x" * 1_000_000, "y" * 1_000_000, ("z" * 1_000_000,), 10**5000, None])
    remembered = [*hasher._known, *hasher._texts]
    assert sum(map(sys.getsizeof, [hasher._known, hasher._texts, *remembered])) < 1000


@pytest.mark.parametrize("positions", [[0], [0, 1]])
def test_a_row_goes_to_the_same_task_whether_few_or_many_are_dealt(positions: list[int]) -> None:
    texts = [f"word {number % 70}" * (number % 7) for number in range(3 * FEW_VALUES)]
    columns: list[Any] = [texts, list(range(len(texts)))]

    def chosen(sizes: list[int]) -> list[int]:
        grouper, found, start = ByFields(range(5, 12), positions), list[int](), 0
        for size in sizes:
            cut = [column[start : start + size] for column in columns]
            rows = Rows(RowsOf(cut), cut, [])
            (deal,) = grouper.deal(rows)
            of = {
                int(row): task
                for task, selector in deal.parts
                for row in (range(size) if selector is None else np.arange(size)[selector])
            }
            found += [of[row] for row in range(size)]
            start += size
        return found

    at_once = chosen([len(texts)])
    assert set(at_once) == set(range(5, 12))
    for size in (1, 2, 10, FEW_VALUES):
        assert chosen([size] * (len(texts) // size)) == at_once


# -- receivers -------------------------------------------------------------------------------------


class Adds(BasicBolt):
    outputs = ("seen",)

    def execute(self, tup: Tuple) -> None:
        tup[0]["n"] += 1
        self.emit([tup[0]["n"]])


class Emits(BasicBolt):
    outputs = ("x",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.last: Any = None

    def execute(self, tup: Tuple) -> None:
        self.emit([{"n": tup[0]}])


@pytest.mark.parametrize("travelling", [True, False])
def test_two_bolts_that_live_together_share_no_values(travelling: bool) -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", FeederSpout(["x"]))
    builder.set_bolt("b", Emits()).local_or_shuffle_grouping("s")
    builder.set_bolt("c1", Adds()).local_or_shuffle_grouping("b")
    builder.set_bolt("c2", Adds()).local_or_shuffle_grouping("b")
    heard = dealt_in_one_host(builder, travelling, [0, 1, 2])
    assert heard["c1"] == heard["c2"] == [1, 2, 3]


class Hears:
    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {}
        self.ended: list[Any] = []

    def emitted(self, component: str, stream: str, task: int, rows: Any) -> None:
        self.rows.setdefault(component, []).extend(row[0] for row in rows)

    def concluded(self, component: str, msg_id: Any, reason: str | None) -> None:
        self.ended.append((msg_id, reason))


def dealt_in_one_host(
    builder: TopologyBuilder, travelling: bool, values: list[Any]
) -> dict[str, list[Any]]:
    topology = builder.create_topology()
    conf = full_conf({})
    layout, hears = TaskLayout(topology, conf), Hears()
    tasks = range(1, layout.count + 1)
    setting = TaskEnvironment(
        topology, layout, conf, "t", lambda: 0.0, frozenset(tasks), listener=hears
    )
    host = SlotTasks(setting, tasks, travelling=travelling)
    host.open()
    host.begin(Batch(0, 0.0, 0.0))
    spout: Any = host.spouts[0]
    for value in values:
        spout.component.collector.emit([value])
    assert not list(host.work())
    return hears.rows


# -- what cannot travel ----------------------------------------------------------------------------


class Locks(BasicBolt):
    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.emit([threading.Lock() if tup[0] == 3 else tup[0]])


@bolt(outputs=("x",))
def wrong_rows(tup: Tuple) -> Any:
    yield [tup[0], 1] if tup[0] == 3 else [tup[0]]


class ByHand(Bolt):
    outputs = ("x",)

    def execute(self, tup: Tuple) -> None:
        self.emit([threading.Lock() if tup[0] == 3 else tup[0]], anchors=tup)
        self.ack(tup)


class Counts(Spout):
    outputs = ("n",)

    def __init__(self) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < 5:
            self.emit([self.at], msg_id=self.at)
            self.at += 1

    def is_exhausted(self) -> bool:
        return self.at == 5


@pytest.mark.parametrize("strict", [True, False], ids=["test kit", "as on Spark"])
@pytest.mark.parametrize("made", [Locks, lambda: wrong_rows, ByHand], ids=["lock", "row", "rich"])
def test_an_emit_that_is_refused_fails_its_own_tuple_by_policy(
    made: Callable[[], Any], strict: bool
) -> None:
    topology = line(Counts(), made(), Passes())
    conf = {"topology.uncaught.error": "fail"}
    run = InlineRun("t", topology, conf, now=lambda: 0.0, strict=strict)
    run.settle()
    assert run.status == "COMPLETED"
    assert sorted(run.recorder.acked["s"]) == [0, 1, 2, 4]
    assert run.recorder.failed["s"] == [3]
    assert any("b1" in str(error) for error in run.errors())


@pytest.mark.parametrize("strict", [True, False], ids=["test kit", "as on Spark"])
@pytest.mark.parametrize("made", [Locks, lambda: wrong_rows, ByHand], ids=["lock", "row", "rich"])
def test_an_emit_that_is_refused_names_the_component(made: Callable[[], Any], strict: bool) -> None:
    run = InlineRun("t", line(Counts(), made(), Passes()), {}, now=lambda: 0.0, strict=strict)
    with pytest.raises(UncaughtError, match="bolt 'b1' task 1"):
        run.settle()


class TriesAgain(BasicBolt):
    """Emits on two streams that one bolt reads, so that their order matters."""

    outputs = {"default": ("x",), "other": ("x",)}

    def execute(self, tup: Tuple) -> None:
        try:
            self.emit([threading.Lock()])
        except EmitError:
            self.emit([tup[0]], stream="other")
        self.emit([tup[0]])


def test_a_refused_emit_leaves_nothing_behind() -> None:
    builder = TopologyBuilder()
    feeder = FeederSpout(["x"])
    builder.set_spout("s", feeder)
    builder.set_bolt("b", TriesAgain()).global_grouping("s")
    passes = builder.set_bolt("c", Passes()).global_grouping("b")
    passes.global_grouping("b", stream="other")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        feeder.feed([1])
        feeder.feed([2])
        run.settle()
        assert [row[0] for row in run.tuples("c")] == [1, 1, 2, 2]


class RefusedDirect(Spout):
    outputs = {"default": ("x",)}

    def declare_output_fields(self, declarer: Any) -> None:
        declarer.declare("x", direct=True)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.targets = context.component_tasks("b")
        self.done = False

    def next_tuple(self) -> None:
        if not self.done:
            with pytest.raises(EmitError):
                self.emit_direct(self.targets[0], [threading.Lock()])
            self.emit_direct(self.targets[1], ["ok"], msg_id=1)
            self.done = True

    def is_exhausted(self) -> bool:
        return self.done


def test_a_refused_direct_emit_leaves_nothing_behind() -> None:
    class Where(BasicBolt):
        outputs = ("task",)

        def execute(self, tup: Tuple) -> None:
            self.emit([self.context.this_task_index])

    builder = TopologyBuilder()
    builder.set_spout("s", RefusedDirect())
    builder.set_bolt("b", Where(), 2).direct_grouping("s")
    assert complete_topology(builder.create_topology()).tuples("b") == [[1]]


# -- kept tuples -----------------------------------------------------------------------------------


def test_a_tracer_that_is_switched_off_changes_no_kept_tuple() -> None:
    kept: list[Tuple] = []

    class Keeps(BasicBolt):
        def execute(self, tup: Tuple) -> None:
            if tup[0] == 5:
                stop_tracing()
            kept.append(tup)

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        frame.f_locals  # noqa: B018
        return tracer

    before = sys.gettrace()

    def stop_tracing() -> None:
        sys.settrace(before)
        frame: Any = sys._getframe()
        while frame is not None:
            frame.f_trace = None
            frame = frame.f_back

    life = Life(Keeps())
    sys.settrace(tracer)
    try:
        life.execute(*range(20))
    finally:
        sys.settrace(before)
    assert [tup[0] for tup in kept] == list(range(20))


# -- what user code raises -------------------------------------------------------------------------


class Panic(BaseException):
    """As extensions raise it."""


class Unshowable(Exception):
    def __str__(self) -> str:
        raise AttributeError("no text")


class UnshowableCall(TypeError):
    def __str__(self) -> str:
        raise SystemExit(9)


class Bare(TopoError):
    def __init__(self) -> None:
        pass


class NoRepr:
    def __repr__(self) -> str:
        raise AttributeError("no repr")


RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "no exception": (lambda: Panic("out of memory"), "Panic: out of memory"),
    "no text": (
        lambda: Unshowable("the reason"),
        r"Unshowable: \(its text cannot be shown",
    ),
    "surrogate": (lambda: ValueError("caf\udce9"), r"ValueError: caf\\udce9"),
    "no text of a kind with hints": (
        lambda: UnshowableCall("the reason"),
        r"UnshowableCall: \(its text cannot be shown",
    ),
    "an iterator that has ended": (lambda: StopIteration(3), "StopIteration: 3"),
    "a generator that is closed": (lambda: GeneratorExit("x"), "GeneratorExit: x"),
    "an exit": (lambda: SystemExit(3), "SystemExit: 3"),
    "an error of topo's without its parts": (lambda: Bare(), "Bare: "),
}


class Raises(BasicBolt):
    def __init__(self, make: Callable[[], BaseException]) -> None:
        self.make = make

    def execute(self, tup: Tuple) -> None:
        if tup[0] == 1:
            raise self.make()


@pytest.mark.parametrize(("make", "text"), RAISED.values(), ids=RAISED)
def test_whatever_user_code_raises_is_named_and_follows_the_policy(make: Any, text: str) -> None:
    with pytest.raises(UncaughtError, match=rf"bolt 'b1' task 1, tuple \[1\] of 's': {text}"):
        Fed(Raises(make)).feed(1)
    fed = Fed(Raises(make), conf={"topology.uncaught.error": "fail"}).feed(1, 2)
    assert (fed.feeder.acked, fed.feeder.failed) == ([2], [1])


def test_a_value_that_cannot_be_shown_does_not_hide_the_error() -> None:
    class Fails(BasicBolt):
        def execute(self, tup: Tuple) -> None:
            raise ValueError("the real reason")

    with pytest.raises(ValueError, match=r"a NoRepr, which cannot be shown.*the real reason"):
        Fed(Fails()).feed_untracked(NoRepr())


class BareFailure(FailTuple):
    def __init__(self) -> None:
        pass


def test_a_failure_without_its_parts_is_one() -> None:
    fed = Fed(Raises(BareFailure)).feed(1, 2)
    assert (fed.feeder.acked, fed.feeder.failed) == ([2], [1])


@contextlib.contextmanager
def on_ctrl_c(handler: Any) -> Iterator[None]:
    """Handle Ctrl-C so; a shell lets what it runs in the background ignore it."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_where_ctrl_c_does_not_raise_is_the_codes_own() -> None:
    # As in a slot's process, and in the thread of topo local.
    with (
        on_ctrl_c(signal.SIG_IGN),
        pytest.raises(UncaughtError, match=r"'b1' task 1, tuple \[1\] .*KeyboardInterrupt"),
    ):
        Fed(Raises(KeyboardInterrupt)).feed(1)


def test_ctrl_c_is_not_a_failure_of_the_code_it_came_out_of() -> None:
    def interrupted() -> BaseException:
        return KeyboardInterrupt()

    fed = Fed(Raises(interrupted), conf={"topology.uncaught.error": "fail"})
    with on_ctrl_c(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        fed.feed(1)
    assert fed.run.status == "FAILED"
