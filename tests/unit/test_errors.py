"""Wrong use gets an error that says what happened, where, and what to do."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers, Sink
from tests.wiring import Fed, line
from topo import (
    AnchorError,
    BasicBolt,
    Bolt,
    CustomStreamGrouping,
    EmitError,
    InvalidTopologyError,
    Problem,
    Spout,
    TopoError,
    TopologyBuilder,
    Tuple,
    TupleSettledError,
    UncaughtError,
)
from topo.engine.inline.run import InlineRun
from topo.errors import ConfigError, did_you_mean, nearest
from topo.testing import TestCluster, complete_topology, make_tuple, run_bolt

HERE = Path(__file__).name


class Does(Bolt):
    """Does what it is told with each tuple."""

    outputs = {"default": ("a", "b"), "other": ("c",)}

    def __init__(self, what: Callable[[Any, Any], object]) -> None:
        self.what = what

    def execute(self, tup: Tuple) -> None:
        self.what(self, tup)


class BasicDoes(BasicBolt):
    outputs = {"default": ("a", "b"), "other": ("c",)}

    def __init__(self, what: Callable[[Any, Any], object]) -> None:
        self.what = what

    def execute(self, tup: Tuple) -> None:
        self.what(self, tup)


class NoOutputs(Bolt):
    def execute(self, tup: Tuple) -> None:
        self.emit([1])


EMITS: list[tuple[Any, type[Exception], str, str]] = [
    (
        lambda self, tup: self.emit([1]),
        EmitError,
        "emitted 1 values, [1], on stream 'default', which has 2 fields: a, b",
        "emit a value for each field",
    ),
    (lambda self, tup: self.emit("ab"), TypeError, "emitted a str, 'ab'", "write ['ab']"),
    (lambda self, tup: self.emit(b"ab"), TypeError, "emitted a bytes, b'ab'", "write [b'ab']"),
    (lambda self, tup: self.emit({"a": 1, "b": 2}), TypeError, "emitted a dict", "a list"),
    (lambda self, tup: self.emit(7), TypeError, "emitted an int, 7", "emit a list of values"),
    (lambda self, tup: self.emit(tup), TypeError, "emitted a Tuple", "emit a list of values"),
    (
        lambda self, tup: self.emit([1], stream="othr"),
        EmitError,
        "emitted on stream 'othr', which it does not declare; it declares 'default', 'other'",
        "did you mean 'other'?",
    ),
    (
        lambda self, tup: self.emit_direct(1, [1], stream="other"),
        EmitError,
        "made a direct emit on stream 'other', which is a regular one",
        "declare it with direct=True",
    ),
    (
        lambda self, tup: self.emit([1, 2], stream=None),
        EmitError,
        "emitted on stream None; a stream's name is a str",
        "all but the values is given by name",
    ),
    (
        lambda self, tup: self.emit([1, 2], stream=["other"]),
        EmitError,
        "emitted on stream ['other']; a stream's name is a str",
        "all but the values is given by name",
    ),
    (
        lambda self, tup: self.emit_direct("3", [1, 2]),
        EmitError,
        "made a direct emit to '3', which is no task",
        "context.component_tasks(component)",
    ),
    (
        lambda self, tup: self.emit_direct([1], 3),
        EmitError,
        "made a direct emit to [1], which is no task",
        "emit_direct(task, values)",
    ),
    (lambda self, tup: self.emit_direct(0, [1, 2]), EmitError, "emit to 0, which is no task", ""),
]


@pytest.mark.parametrize("kind", [Does, BasicDoes])
@pytest.mark.parametrize(("what", "error", "message", "hint"), EMITS)
def test_a_wrong_emit(
    kind: Any, what: Any, error: type[Exception], message: str, hint: str
) -> None:
    with pytest.raises(error) as running:
        Fed(kind(what)).feed(1)
    assert isinstance(running.value, UncaughtError)
    assert message in str(running.value)
    assert hint in running.value.hint
    with pytest.raises(error) as alone:
        run_bolt(kind(what), [make_tuple([1])])
    assert message in str(alone.value)


class DoesOne(Bolt):
    """As Does, with one stream: what it emits goes the short way."""

    outputs = ("a",)

    def __init__(self, what: Callable[[Any, Any], object]) -> None:
        self.what = what

    def execute(self, tup: Tuple) -> None:
        self.what(self, tup)


class BasicDoesOne(BasicBolt):
    outputs = ("a",)

    def __init__(self, what: Callable[[Any, Any], object]) -> None:
        self.what = what

    def execute(self, tup: Tuple) -> None:
        self.what(self, tup)


class SpoutDoes(Spout):
    outputs = ("a",)

    def __init__(self, what: Callable[[Any, Any], object]) -> None:
        self.what = what

    def next_tuple(self) -> None:
        self.what(self, make_tuple([1]))


NO_STREAMS: list[tuple[Any, str]] = [
    (lambda self, tup: self.emit([1], 7), "7"),
    (lambda self, tup: self.emit([1], tup), "<Tuple of "),
    (lambda self, tup: self.emit([1], [tup]), "[<Tuple of "),
    (lambda self, tup: self.emit([1], stream=None), "None"),
]


@pytest.mark.parametrize("kind", [DoesOne, BasicDoesOne, SpoutDoes])
@pytest.mark.parametrize(("what", "shown"), NO_STREAMS)
def test_what_is_no_stream_is_refused_where_nobody_checks_the_values(
    kind: Any, what: Any, shown: str
) -> None:
    component = kind(what)
    parts = [component] if kind is SpoutDoes else [Numbers(1), component]
    run = InlineRun("t", line(*parts), None, now=lambda: 0.0, strict=False, record=False)
    with pytest.raises(EmitError) as refused:
        run.step()
    assert isinstance(refused.value, UncaughtError)
    assert f"emitted on stream {shown}" in str(refused.value)
    assert "all but the values is given by name" in refused.value.hint


def test_an_emit_on_the_default_stream_by_name_goes_the_short_way_too() -> None:
    names = ["default", "".join(["def", "ault"])]

    def emits(self: Any, tup: Any) -> None:
        for name in names:
            self.emit([tup[0]], stream=name, anchors=tup)
        self.ack(tup)

    topology = line(Numbers(1), DoesOne(emits), Sink())
    run = InlineRun("t", topology, None, now=lambda: 0.0, strict=False)
    run.settle()
    assert run.tuples("b1") == [[0], [0]]
    assert run.acked["s"] == [0]


def test_a_direct_emit_to_a_task_that_the_topology_does_not_have() -> None:
    wrong = Does(lambda self, tup: self.emit_direct(3, [1, 2]))
    with pytest.raises(EmitError, match=r"bolt 'b1' made a direct emit to 3, which is no task"):
        Fed(wrong).feed(1)  # tasks: 1 is the bolt, 2 the spout


def test_an_emit_without_declared_outputs() -> None:
    with pytest.raises(
        EmitError, match=r"bolt 'b1' emitted, but declares no outputs.*outputs = \("
    ):
        Fed(NoOutputs()).feed(1)


def test_an_emitted_value_that_does_not_pickle() -> None:
    wrong = Does(lambda self, tup: self.emit([1, threading.Lock()], anchors=tup))
    with pytest.raises(EmitError, match="a lock was emitted, which does not pickle") as refused:
        Fed(wrong).feed(1)
    assert isinstance(refused.value, UncaughtError)
    assert "emit plain data" in refused.value.hint


def test_values_changed_after_the_emit() -> None:
    def reuse(self: Any, tup: Any) -> None:
        values = [1, []]
        self.emit(values, anchors=tup)
        values[1].append(2)  # type: ignore[attr-defined]
        self.ack(tup)

    with pytest.raises(EmitError, match=r"'default' were changed after the emit, to \[1, \[2\]\]"):
        Fed(Does(reuse)).feed(1)


SETTLED: list[tuple[Any, type[Exception], str]] = [
    (lambda self, tup: (self.ack(tup), self.ack(tup)), TupleSettledError, "cannot be acked: it is"),
    (lambda self, tup: (self.fail(tup), self.ack(tup)), TupleSettledError, "cannot be acked: it"),
    (lambda self, tup: (self.ack(tup), self.fail(tup)), TupleSettledError, "cannot be failed: it"),
    (
        lambda self, tup: (self.ack(tup), self.emit([1, 2], anchors=tup)),
        TupleSettledError,
        "cannot be anchored to: it is acked or failed already",
    ),
    (
        lambda self, tup: (self.fail(tup), self.emit([1, 2], anchors=[tup])),
        TupleSettledError,
        "cannot be anchored to",
    ),
    (lambda self, tup: self.emit([1, 2], anchors="tup"), AnchorError, "input tuple; got 'tup'"),
    (lambda self, tup: self.emit([1, 2], anchors=[tup, 3]), AnchorError, "input tuple; got 3"),
    (lambda self, tup: self.emit([1, 2], anchors=5), AnchorError, "input tuple; got 5"),
    (lambda self, tup: self.ack(tup.values), AnchorError, "got [1]"),
    (lambda self, tup: self.fail("why"), AnchorError, "got 'why'"),
]


@pytest.mark.parametrize(("what", "error", "message"), SETTLED)
def test_a_wrong_anchor_ack_or_fail(what: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as running:
        Fed(Does(what)).feed(1)
    assert isinstance(running.value, UncaughtError)
    assert message in str(running.value)
    assert running.value.hint
    with pytest.raises(error) as alone:
        run_bolt(Does(what), [make_tuple([1])])
    assert message in str(alone.value)


@pytest.mark.parametrize("tracked", [True, False])
def test_a_tuple_kept_from_an_earlier_batch_is_settled_once_too(tracked: bool) -> None:
    def keep(self: Any, tup: Any) -> None:
        if tup.x == 1:
            self.kept = tup
        else:
            self.ack(self.kept)

    fed = Fed(Does(keep))
    feed = fed.feed if tracked else fed.feed_untracked
    feed(1)
    feed(2)
    with pytest.raises(TupleSettledError, match="cannot be acked"):
        feed(3)


def test_unknown_fields_of_a_tuple_in_a_running_bolt() -> None:
    with pytest.raises(KeyError, match="no field 'y' in a tuple of 's'; its fields are 'x'"):
        Fed(Does(lambda self, tup: tup["y"])).feed(1)
    with pytest.raises(AttributeError, match="no field 'xx' in a tuple of 's'"):
        Fed(Does(lambda self, tup: tup.xx)).feed(1)


# -- uncaught errors -------------------------------------------------------------------------------


def inner() -> None:
    raise LookupError("the user's own words")


class Breaks(BasicBolt):
    def execute(self, tup: Tuple) -> None:
        inner()


def test_an_uncaught_error_has_the_users_traceback_first_and_no_frame_of_topo() -> None:
    with pytest.raises(LookupError) as stopped:
        Fed(Breaks()).feed("cow")
    error = stopped.value
    assert isinstance(error, UncaughtError)
    assert (error.component, error.task) == ("b1", 1)
    assert error.tuple_text == "tuple ['cow'] of 's'"
    text = str(error)
    assert text.startswith("Traceback (most recent call last)")
    trace, _, rest = text.partition("\n\n")
    assert trace.endswith("LookupError: the user's own words")
    assert "in execute" in trace
    assert "in inner" in trace
    files = [row for row in trace.splitlines() if row.strip().startswith("File ")]
    assert [HERE in row for row in files] == [True, True]
    assert rest.startswith("bolt 'b1' task 1, tuple ['cow'] of 's': LookupError: the user's own wo")
    assert HERE in error.at
    assert isinstance(error.__cause__, LookupError)


def test_a_cause_in_the_users_code_is_kept() -> None:
    def chain(self: Any, tup: Any) -> None:
        try:
            inner()
        except LookupError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(RuntimeError) as stopped:
        Fed(Does(chain)).feed(1)
    assert "direct cause of the following exception" in str(stopped.value)
    assert "topo/runtime" not in str(stopped.value)


class Awkward(Exception):
    """Cannot be made without its arguments."""

    def __init__(self, code: int, *, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


@pytest.mark.parametrize(
    "error",
    [
        Awkward(3, text="x"),
        OSError(2, "gone"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "y"),
        SystemExit(3),
    ],
)
def test_any_exception_becomes_an_uncaught_error(error: BaseException) -> None:
    def throw(self: Any, tup: Any) -> None:
        raise error

    with pytest.raises(UncaughtError) as stopped:
        Fed(Does(throw)).feed(1)
    assert str(error) in str(stopped.value)
    assert stopped.value.__cause__ is error


@pytest.mark.parametrize(
    "hook", ["open", "next_tuple", "ack", "fail", "activate", "deactivate", "is_exhausted", "close"]
)
def test_an_uncaught_error_in_any_hook_of_a_spout(hook: str) -> None:
    def raises(self: Any, *args: Any) -> None:
        raise ZeroDivisionError(hook)

    def emits(self: Any) -> None:
        if not getattr(self, "done", False):
            self.done = True
            self.emit([1], msg_id=1)
            self.emit([2], msg_id=2)

    def sift(self: Any, tup: Any) -> None:
        (self.ack if tup.x == 1 else self.fail)(tup)

    body = {"outputs": ("x",), "next_tuple": emits, hook: raises}
    spout: Spout = type("Hooked", (Spout,), body)()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Does(sift)))
        with pytest.raises(ZeroDivisionError, match=rf"spout 's' task 2: .*{hook}") as stopped:
            run_through(run)
        assert isinstance(stopped.value, UncaughtError)
        assert run.status == "FAILED"
        assert "ZeroDivisionError" in run.reason


def run_through(run: Any) -> None:
    run.step(2)
    run.deactivate()
    run.step()
    run.kill()


@pytest.mark.parametrize(
    "hook", ["prepare", "execute", "on_tick", "restored", "pre_commit", "cleanup"]
)
def test_an_uncaught_error_in_any_hook_of_a_bolt(hook: str) -> None:
    def raises(self: Any, *args: Any) -> None:
        raise ZeroDivisionError(hook)

    def fine(self: Any, tup: Any) -> None:
        self.ack(tup)

    bolt: Bolt = type("Hooked", (Bolt,), {"execute": fine, hook: raises})()
    fed = Fed(bolt, conf={"topology.tick.tuple.freq.secs": 1})
    with pytest.raises(ZeroDivisionError, match="bolt 'b1' task 1") as stopped:
        run_hooks(fed)
    assert isinstance(stopped.value, UncaughtError)
    assert fed.run.status == "FAILED"


ODD = (StopIteration, StopAsyncIteration, GeneratorExit, SystemExit, asyncio.CancelledError)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    "hook", ["prepare", "execute", "on_tick", "restored", "pre_commit", "cleanup"]
)
def test_odd_exceptions_of_a_hook_are_named_as_others(hook: str, kind: Any) -> None:
    def raises(self: Any, *args: Any) -> None:
        raise kind(hook)

    bolt: Bolt = type("Hooked", (Bolt,), {"execute": settle, hook: raises})()
    fed = Fed(bolt, conf={"topology.tick.tuple.freq.secs": 1})
    with pytest.raises(UncaughtError, match=f"bolt 'b1' task 1.*{kind.__name__}: {hook}"):
        run_hooks(fed)
    assert fed.run.status == "FAILED"


def settle(self: Any, tup: Any) -> None:
    self.ack(tup)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("hook", ["open", "activate", "next_tuple", "ack", "fail", "deactivate"])
def test_odd_exceptions_of_a_spout_are_named_as_others(hook: str, kind: Any) -> None:
    def raises(self: Any, *args: Any) -> None:
        raise kind(hook)

    def emits(self: Any) -> None:
        if not getattr(self, "done", False):
            self.done = True
            self.emit([1], msg_id=1)
            self.emit([2], msg_id=2)

    def sift(self: Any, tup: Any) -> None:
        (self.ack if tup.x == 1 else self.fail)(tup)

    spout: Spout = type(
        "Hooked", (Spout,), {"outputs": ("x",), "next_tuple": emits, hook: raises}
    )()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(spout, Does(sift)))
        with pytest.raises(UncaughtError, match=rf"'s' task 2.*{kind.__name__}: {hook}"):
            run_through(run)
        assert run.status == "FAILED"


def run_hooks(fed: Fed) -> None:
    fed.feed(1)
    fed.cluster.advance(2)
    fed.run.kill()


@pytest.mark.parametrize("kind", [Does, BasicDoes])
def test_with_fail_the_tuple_fails_and_the_run_goes_on(kind: Any) -> None:
    def odd(self: Any, tup: Any) -> None:
        if tup.x % 2:
            raise ValueError(f"odd {tup.x}")
        if kind is Does:
            self.ack(tup)

    fed = Fed(kind(odd), conf={"topology.uncaught.error": "fail"}).feed(1, 2, 3)
    assert fed.run.status == "ACTIVE"
    assert fed.feeder.acked == [2]
    assert fed.feeder.reasons == {
        1: "failed by 'b1' task 1: ValueError: odd 1",
        3: "failed by 'b1' task 1: ValueError: odd 3",
    }
    uncaught = [error for error in fed.run.errors() if error.kind == "uncaught"]
    assert sorted(error.message for error in uncaught) == ["odd 1", "odd 3"]
    assert all("in odd" in error.traceback and HERE in error.at for error in uncaught)


class Unreadable:
    """A value that pickles, and raises when it is unpickled."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return _unread, (self.kind,)


def _unread(kind: Any) -> Any:
    raise kind("not in this process")


class EmitsUnreadable(Spout):
    outputs = ("value",)

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.emitted = 0

    def next_tuple(self) -> None:
        if self.emitted < 3:
            bad = self.emitted == 1
            self.emit([Unreadable(self.kind) if bad else self.emitted], msg_id=self.emitted)
            self.emitted += 1

    def is_exhausted(self) -> bool:
        return self.emitted == 3


class Acks(Bolt):
    def execute(self, tup: Tuple) -> None:
        self.ack(tup)


@pytest.mark.parametrize("kind", [ValueError, LookupError, SystemExit, GeneratorExit])
@pytest.mark.parametrize("bolt", [Acks, Sink])
def test_a_value_that_cannot_be_unpickled(bolt: Any, kind: Any) -> None:
    topology = line(EmitsUnreadable(kind), bolt())
    with pytest.raises(UncaughtError, match="not in this process") as raised:
        complete_topology(topology)
    assert (raised.value.component, raised.value.task) == ("b1", 1)
    assert "in values of 's', which cannot be unpickled" in str(raised.value)
    result = complete_topology(topology, conf={"topology.uncaught.error": "fail"})
    assert 1 in result.failed["s"]
    assert sorted([*result.failed["s"], *result.acked["s"]]) == [0, 1, 2]


class Chooses(CustomStreamGrouping):
    """Does what it is told with its target tasks."""

    def __init__(self, how: Callable[[list[int]], Any]) -> None:
        self.how = how

    def prepare(self, context: Any, stream: Any, target_tasks: Any) -> None:
        self.tasks = list(target_tasks)

    def choose_tasks(self, source_task: int, values: list[Any]) -> Any:
        return self.how(self.tasks)


def broken(tasks: list[int]) -> Any:
    yield tasks[0]
    inner()


def grouped(how: Callable[[list[int]], Any], emits: Any = None) -> Any:
    """Tasks: 1 emits, 2 and 3 read."""
    builder = TopologyBuilder()
    builder.set_spout("s", Numbers(1))
    emits = emits or (lambda self, tup: (self.emit([tup[0]], anchors=tup), self.ack(tup)))
    builder.set_bolt("a", DoesOne(emits)).shuffle_grouping("s")
    builder.set_bolt("b", Sink(), parallelism=2).custom_grouping("a", Chooses(how))
    return builder.create_topology()


@pytest.mark.parametrize("how", [lambda tasks: inner(), broken])
@pytest.mark.parametrize("policy", ["stop", "fail"])
def test_an_uncaught_error_in_a_custom_grouping(how: Any, policy: str) -> None:
    with TestCluster() as cluster:
        conf = {"topology.uncaught.error": policy}
        run = cluster.submit_topology("t", grouped(how), conf)
        with pytest.raises(LookupError) as stopped:
            run.settle()
        assert run.status == "FAILED"
    error = stopped.value
    assert isinstance(error, UncaughtError)
    assert (error.component, error.task) == ("a", 1)
    assert error.tuple_text == "custom grouping Chooses of 'b', emitted [0]"
    assert (
        error.message == f"bolt 'a' task 1, {error.tuple_text}: LookupError: the user's own words"
    )
    trace = error.user_traceback
    assert trace.startswith("Traceback (most recent call last)")
    assert "in inner" in trace
    assert all(HERE in row for row in trace.splitlines() if row.strip().startswith("File "))
    assert HERE in error.at
    assert isinstance(error.__cause__, LookupError)


def test_an_uncaught_error_in_a_custom_grouping_that_an_emit_waits_for() -> None:
    def emits(self: Any, tup: Any) -> None:
        self.emit([tup[0]], anchors=tup, task_ids=True)

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", grouped(lambda tasks: inner(), emits))
        with pytest.raises(LookupError) as stopped:
            run.settle()
    error = stopped.value
    assert isinstance(error, UncaughtError)
    assert error.message == (
        "bolt 'a' task 1, custom grouping Chooses of 'b', emitted [0]: "
        "LookupError: the user's own words"
    )
    assert error.user_traceback.count("Traceback") == 1


def test_a_custom_grouping_that_exits_stops_the_topology_not_the_process() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", grouped(lambda tasks: sys.exit(3)))
        with pytest.raises(UncaughtError, match=r"Chooses of 'b', emitted .*: SystemExit: 3"):
            run.settle()
        assert run.status == "FAILED"


@pytest.mark.parametrize(
    ("how", "shown"),
    [
        (lambda tasks: None, "None"),
        (lambda tasks: tasks[0], "2"),
        (lambda tasks: "ab", "['a', 'b']"),
        (lambda tasks: [2.0], "[2.0]"),
        (lambda tasks: [2, 999], "[2, 999]"),
        (lambda tasks: (task for task in (1, 2)), "[1, 2]"),
    ],
)
def test_a_custom_grouping_that_returns_no_target_tasks(how: Any, shown: str) -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", grouped(how))
        with pytest.raises(EmitError) as stopped:
            run.settle()
    error = stopped.value
    assert isinstance(error, UncaughtError)
    assert (error.component, error.task) == ("a", 1)
    assert f"EmitError: Chooses.choose_tasks returned {shown}" in error.message
    assert error.hint == "return a list of task ids, out of [2, 3]"


def test_a_failed_run_says_so_and_cannot_be_moved() -> None:
    fed = Fed(Breaks())
    with pytest.raises(LookupError):
        fed.feed(1)
    assert fed.run.status == "FAILED"
    assert fed.run.reason.startswith("bolt 'b1' task 1, tuple [1] of 's': LookupError")
    fed.run.settle()
    fed.run.kill()
    assert fed.run.status == "FAILED"


# -- the errors themselves -------------------------------------------------------------------------


def test_errors_say_where_and_what_to_do() -> None:
    error = TopoError("it broke", at="x.py:3", hint="mend it", code="mine")
    assert str(error) == "it broke (at x.py:3); mend it"
    assert (error.code, error.at, error.hint) == ("mine", "x.py:3", "mend it")
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        TopoError("a", at="b", hint="c", code="d"),
        InvalidTopologyError([Problem("a", "b", "c", "d")]),
        UncaughtError("a", component="b", task=1, user_traceback="trace"),
    ],
)
def test_errors_pickle(error: TopoError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_an_uncaught_error_pickles_as_one() -> None:
    with pytest.raises(LookupError) as stopped:
        Fed(Breaks()).feed(1)
    again = pickle.loads(pickle.dumps(stopped.value))
    assert isinstance(again, UncaughtError)
    assert isinstance(again, LookupError)
    assert str(again) == str(stopped.value)


def test_an_uncaught_error_passes_where_its_class_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("of_the_user")
    exec("class Theirs(Exception): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "of_the_user", module)

    def throw(self: Any, tup: Any) -> None:
        raise module.Theirs("no such account")

    with pytest.raises(module.Theirs) as stopped:
        Fed(Does(throw)).feed(1)
    packed = pickle.dumps(stopped.value)
    with monkeypatch.context() as elsewhere:
        elsewhere.delitem(sys.modules, "of_the_user")
        passing = pickle.loads(packed)
        assert type(passing).__name__ == "UncaughtError"
        assert isinstance(passing, UncaughtError)
        assert str(passing) == str(stopped.value)
        assert passing.component == stopped.value.component
        packed = pickle.dumps(passing)
    assert isinstance(pickle.loads(packed), module.Theirs)


def test_the_nearest_name() -> None:
    assert nearest("Wrds", ["words", "other"]) == "words"
    assert nearest("zzz", ["words"]) == ""
    assert nearest(None, ["none"]) == nearest(["words"], ["words"]) == ""
    assert did_you_mean("wrds", ["words"]) == "did you mean 'words'?"
    assert did_you_mean("zzz", ["words"]) == ""
