"""A level of real-time mode: portions of work, messages that wait for company, strangers."""

from __future__ import annotations

import socket
import struct
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_real_time_streams import Loop
from tests.wiring import line
from topo import BasicBolt, EngineError, TopologyBuilder, Tuple
from topo.engine.spark.plan import Plan, make_plan
from topo.engine.spark.process.framing import pack_block, read_block
from topo.engine.spark.realtime import output
from topo.engine.spark.realtime.align import Marker
from topo.engine.spark.realtime.java import check_spark
from topo.engine.spark.realtime.messages import Place
from topo.engine.spark.realtime.output import MARKER, Item, Output
from topo.engine.spark.realtime.places import check_places, places_needed, plan_that_fits
from topo.engine.spark.realtime.portions import PORTION_BYTES, Portion, Queue, shares_of_turn
from topo.engine.spark.realtime.stream import Listener, connect
from topo.runtime.outbox import Outbox, Piece
from topo.testing import FeederSpout
from topo.tracking.plan import Mode
from topo.wire.frame import Frame, PackedFrame, Section


class Pass(BasicBolt):
    outputs = ("num",)

    def execute(self, tup: Tuple) -> None:
        self.emit([tup[0]])


def plan(slots: int = 1) -> Plan:
    return make_plan(line(FeederSpout(["num"]), Pass()), slots)


def packed(rows: int, target: int = 1) -> PackedFrame:
    (frame,) = Frame(9, target, 0, [Section("default", rows, [list(range(rows))])]).pack()
    return frame


# -- portions -------------------------------------------------------------------------------------


def work_off(queue: Queue, made_of_each: int) -> list[list[Any]]:
    """Take everything, as if each tuple made so many bytes; return the values by portion."""
    portions = []
    while queue:
        frames = [frame.unpack() for frame in queue.take()]
        rows = [value for frame in frames for value in frame.sections[0].columns[0]]
        queue.learn(len(rows) * made_of_each)
        portions.append(rows)
    return portions


def test_a_tuple_that_makes_much_is_worked_on_alone() -> None:
    queue = Queue()
    queue.add(packed(50))
    assert work_off(queue, 10_000_000) == [[number] for number in range(50)]


def test_portions_grow_where_little_comes_out_and_keep_the_order() -> None:
    queue = Queue()
    for _ in range(40):
        queue.add(packed(1000))
    portions = work_off(queue, 10)
    assert len(portions[0]) == 1
    assert list(chain.from_iterable(portions)) == list(range(1000)) * 40
    assert len(portions) < 20
    for _ in range(3):
        queue.add(packed(1000))
    assert len(work_off(queue, 10)) == 1  # it has learned


def test_what_comes_out_of_a_portion_is_bounded_once_it_is_known() -> None:
    queue = Queue()
    queue.add(packed(4000))
    made = [len(rows) * 20_000 for rows in work_off(queue, 20_000)]
    assert max(made) < 6 * PORTION_BYTES
    assert sum(made) == 4000 * 20_000


def test_a_small_portion_says_nothing_of_large_ones() -> None:
    portion = Portion()
    for _ in range(5):
        portion.learn(1000, 1000)
    grown = portion.allowed
    portion.learn(1, 1)
    assert portion.allowed == grown
    portion.learn(1000, 1000 * PORTION_BYTES)
    assert portion.allowed == 1


@pytest.mark.parametrize(("epoch_ms", "shares"), [(0, 1), (1, 1), (10, 1), (50, 5), (60_000, 8)])
def test_longer_epochs_have_larger_turns_up_to_a_limit(epoch_ms: float, shares: int) -> None:
    assert shares_of_turn(epoch_ms) == shares


# -- messages -------------------------------------------------------------------------------------


class Wire:
    """A stream that keeps what is sent."""

    waiting = 0

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, key: int, *parts: Any) -> None:
        self.sent.append(b"".join(parts))

    def flush(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_few_messages_go_at_once_and_many_wait_for_a_millisecond(clock: list[float]) -> None:
    made = plan()
    task = next(iter(made.component("b1").tasks))
    wire: Any = Wire()
    out = Output(made, 0, 0)
    out.stream = wire
    for _ in range(30):  # one a millisecond
        clock[0] += 0.001
        out.add(packed(1, task))
        out.send()
    assert len(wire.sent) == 30
    for _ in range(200):  # ten
        clock[0] += 0.0001
        out.add(packed(1, task))
        out.send()
    assert 30 + 20 < len(wire.sent) < 30 + 190
    before = len(wire.sent)
    out.add(packed(1, task))
    out.send()
    assert len(wire.sent) == before
    assert clock[0] < out.due_at <= clock[0] + 0.001
    out.end(7, Mode.ACTIVE, 1.0, b"")
    data, marker = wire.sent[before:]
    assert (data[0], marker[0]) == (output.DATA, MARKER)
    epoch, sent, _, _ = output.END.unpack_from(marker, output.HEAD.size)
    assert (epoch, sent) == (7, before + 1)
    assert out.due_at == 0


class Near:
    """A next level that keeps what it is given."""

    backlog = 0.0

    def __init__(self) -> None:
        self.got: list[Any] = []

    def take_in(self, source: int, item: Item | Marker) -> None:
        assert source == 0
        self.got.append(item)


def test_what_is_for_the_own_slot_goes_to_the_next_level_as_it_is() -> None:
    builder = TopologyBuilder()
    builder.set_spout("s", FeederSpout(["num"]))
    builder.set_bolt("b1", Pass(), parallelism=2).shuffle_grouping("s")
    made, wire, near = make_plan(builder.create_topology(), 2), Wire(), Near()
    here, there = sorted(made.component("b1").tasks, key=lambda task: made.place_of(task)[1])
    out = Output(made, 0, 0)
    out.connect(wire)  # type: ignore[arg-type]
    out.lead_to(near)
    decoded = Frame(9, here, 0, [Section("default", 1, [["text"]])], nbytes=5)
    for frame in (decoded, packed(3, there)):
        out.add(frame)
    assert out.moved == 5 + packed(3, there).nbytes
    out.send()
    out.send()
    out.end(7, Mode.ACTIVE, 1.0, b"marks")
    assert near.got == [(1, [decoded]), Marker(7, 1, int(Mode.ACTIVE), 1.0, b"marks")]
    data, marker = wire.sent
    assert (data[0], marker[0]) == (output.DATA, MARKER)
    assert output.END.unpack_from(marker, output.HEAD.size)[1] == 1


def test_a_level_waits_while_the_next_one_has_too_much() -> None:
    near, out = Near(), Output(plan(), 0, 0)
    out.connect(Wire())  # type: ignore[arg-type]
    out.lead_to(near)
    assert not out.is_full
    near.backlog = output.MOST_WAITING_BYTES + 1
    assert out.is_full


@pytest.mark.parametrize(
    ("column", "stays", "least"),
    [
        (["text" * 100, ""], True, 400),
        ([1, None, 2.5, b"x" * 5000], True, 5000),
        ([["a list"]], False, 1),
        ([("a tuple of a list", [])], False, 1),
    ],
)
def test_values_for_a_task_of_the_process_stay_as_they_are_unless_they_can_change(
    column: list[Any], stays: bool, least: int
) -> None:
    outbox = Outbox(1)
    outbox.near_for = frozenset({2})
    for task in (2, 3):
        outbox.add(task, Piece(Section("default", len(column), [column]), None))
    near, far = outbox.take()
    assert isinstance(near, Frame) == stays
    assert isinstance(far, PackedFrame)
    assert least <= near.nbytes < least + 200
    for frame in (near, far):
        assert frame.unpack().sections[0].columns == [column]


# -- strangers ------------------------------------------------------------------------------------


def test_who_announces_much_before_showing_the_token_is_hung_up_on() -> None:
    loop = Loop()
    listener = Listener("127.0.0.1:0", "right", loop.selector, lambda *_: pytest.fail("let in"))
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(struct.pack("<iI", 1, 1 << 30) + b"x" * 100)
        stranger.setblocking(False)

        def is_over() -> bool:
            try:
                return stranger.recv(1) == b""
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True

        loop.until(is_over)
    listener.close()
    loop.selector.close()


def test_between_machines_a_stream_is_the_same() -> None:
    loop = Loop()
    got: list[tuple[int, bytes]] = []
    accepted = []

    def accept(stream: Any, key: int) -> None:
        accepted.append(stream)
        stream.listen(lambda: got.extend(stream.receive()))

    listener = Listener("127.0.0.1:0", "right", loop.selector, accept)
    stream = connect(f"127.0.0.1:{listener.port}", "right", 3, loop.selector)
    stream.send(5, bytes(300_000))
    stream.flush()
    loop.until(lambda: got)
    assert got == [(5, bytes(300_000))]
    for one in (stream, *accepted):
        one.close()
    listener.close()
    loop.selector.close()


def test_a_place_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = Place("127.0.0.1:1234", "token", 3, str(tmp_path / "slot-3"))
    assert Place.unpack(place.pack()) == place
    file = tmp_path / "said"
    file.write_bytes(pack_block(place.pack()))
    with file.open("rb") as source:
        assert read_block(source.read) == place.pack()
        with pytest.raises(EOFError, match="nobody says"):
            read_block(source.read)


# -- places ---------------------------------------------------------------------------------------


def test_as_many_slots_as_have_all_their_places() -> None:
    topology = line(FeederSpout(["num"]), Pass(), Pass())
    plan = plan_that_fits(topology, 8, {})
    assert (plan.slots, places_needed(plan)) == (2, 6)
    plan = plan_that_fits(topology, 2, {})
    with pytest.raises(EngineError, match=r"needs 3 task places .*, and this Spark has 2") as told:
        check_places(plan, 2)
    assert "topology.mode=micro-batch" in told.value.hint


@pytest.mark.parametrize("version", ["4.2.1", "3.5.0", "4.0.0.dev1"])
def test_an_older_spark_is_told(version: str) -> None:
    with pytest.raises(EngineError, match=f"Spark {version} cannot run in real-time") as told:
        check_spark(version)
    assert "needs Spark 4.3 or later" in told.value.hint


@pytest.mark.parametrize("version", ["4.3.0", "4.4.0-SNAPSHOT", "5.0.1"])
def test_a_newer_spark_is_tried(version: str) -> None:
    check_spark(version)
