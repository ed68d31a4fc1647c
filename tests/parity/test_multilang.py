"""Exchanges with children of storm.py, pystorm and node, recorded, and the wire of the protocol."""

from __future__ import annotations

import json
import logging
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import Case
from tests.parity.areas import Runner, parameters
from topo import BasicBolt, Spout, TopologyBuilder
from topo.errors import ShellError
from topo.multilang import ShellBolt, ShellSpout
from topo.multilang.process import ShellProcess
from topo.multilang.wire import JsonWire, Message, command_of, emit_of, log_of
from topo.testing import TestCluster, make_tick, make_tuple, run_bolt, run_spout

CHILDREN = Path(__file__).parents[1] / "multilang" / "children"
LEVELS = {5: 0, logging.DEBUG: 1, logging.INFO: 2, logging.WARNING: 3, logging.ERROR: 4}


@pytest.fixture(autouse=True)
def _case_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Have the runners find a directory and the log records of the test."""
    Surroundings.directory, Surroundings.caplog = tmp_path, caplog
    caplog.set_level(5, "topo.multilang")


class Surroundings:
    directory: Path
    caplog: pytest.LogCaptureFixture


class Understood:
    """What a component has understood since the last batch."""

    def __init__(self) -> None:
        self.parts: dict[str, list[Any]] = {}

    def add(self, part: str, value: Any) -> None:
        self.parts.setdefault(part, []).append(value)

    def take(self) -> dict[str, Any]:
        parts, self.parts = self.parts, {}
        records = Surroundings.caplog.records
        logged = [[LEVELS[r.levelno], r.getMessage()] for r in records if is_logged(r)]
        records.clear()
        return {**parts, **({"logged": logged} if logged else {})}


def is_logged(record: logging.LogRecord) -> bool:
    return record.name == "topo.multilang" and not record.getMessage().startswith("stderr:")


class Bolt(ShellBolt):
    """A bolt that notes its own calls, and emits to the tasks of the case."""

    transient = ("understood", "ids", "tasks")

    def begin(self, tasks: list[int]) -> Bolt:
        self.understood, self.tasks = Understood(), tasks
        self.ids: dict[int, str] = {}
        return self

    def name_of(self, tup: Any) -> str:
        return self.ids[id(tup)]

    def emit(self, values: Any, *, stream: str = "default", anchors: Any = None, **_: Any) -> Any:
        listed = list(anchors) if isinstance(anchors, list) else [anchors]
        emitted = {"values": values, "stream": stream, "anchors": list(map(self.name_of, listed))}
        self.understood.add("emitted", emitted)
        return self.tasks

    def emit_direct(self, task: int, values: Any, **options: Any) -> None:
        self.emit(values, **options)
        self.understood.parts["emitted"][-1]["task"] = task

    def ack(self, tup: Any) -> None:
        if id(tup) in self.ids:  # a tick is acked when it is sent
            self.understood.add("acked", self.ids[id(tup)])

    def fail(self, tup: Any, reason: str | None = None) -> None:
        self.understood.add("failed", self.ids[id(tup)])

    def report_error(self, error: Any) -> None:
        self.understood.add("errors", str(error))


def steps_file(case: Case) -> str:
    file = Surroundings.directory / "steps.json"
    file.write_text(json.dumps(case["steps"]), encoding="utf-8")
    return str(file)


def batches_of(case: Case) -> Iterator[list[Message]]:
    """Yield the tuples between heartbeats; what comes behind the last one is a batch of none."""
    batch: list[Message] = []
    count = 0
    for step in case["steps"]:
        message = step.get("parent")
        if not isinstance(message, dict):
            continue
        if message["stream"] == "__heartbeat":
            yield batch
            batch, count = [], count + 1
        else:
            batch.append(message)
    yield from ([] for _ in case["expect"]["by batch"][count:])


def run_bolt_case(case: Case) -> None:
    command = [sys.executable, str(CHILDREN / "play.py"), steps_file(case)]
    bolt = Bolt(command, ("value",), cwd=None).begin(case["settings"]["tasks that an emit goes to"])
    run = run_bolt(bolt)
    try:
        for number, batch in enumerate(batches_of(case)):
            expected = case["expect"]["by batch"][number]
            tuples = [make_tick(m["tuple"][0]) if m["task"] < 0 else tuple_of(m) for m in batch]
            for tup, message in zip(tuples, batch, strict=True):
                if not tup.is_tick:
                    bolt.ids[id(tup)] = message["id"]
            fault = None
            try:
                run.batch(tuples)
            except ShellError as error:
                fault = error
            check_understood(bolt, expected, fault)
    finally:
        bolt.cleanup()


def tuple_of(message: Message) -> Any:
    return make_tuple(
        message["tuple"],
        component=message["comp"],
        stream=message["stream"],
        task=message["task"],
    )


def check_understood(bolt: Bolt, expected: Case, fault: ShellError | None) -> None:
    understood = bolt.understood.take()
    counters, gauges, _ = bolt.context.figures.take()
    expected = dict(expected)
    assert dict(counters) == dict(expected.pop("metrics", []))
    assert not gauges
    code = expected.pop("exit", None)
    is_unreadable = expected.pop("unreadable", False)
    assert (fault is None) == (code is None and not is_unreadable)
    if code is not None:
        assert f"ended with exit code {code}" in str(fault)
    if is_unreadable:
        assert fault is not None
        assert fault.code == "unreadable"
        assert "not json" in str(fault)
        assert "stdout" in fault.hint
    held = [bolt.name_of(tup) for tup in bolt._held.values()]
    assert held == expected.pop("held", [])
    acked = [number for number in expected.get("acked", []) if not number.startswith("t")]
    if len(set(acked)) < len(acked):  # twice: the second time is an error, and the tuple is acked
        acked = list(dict.fromkeys(acked))
        assert "neither acked nor failed" in understood.pop("errors")[0]
    expected.pop("acked", None)
    assert understood.pop("acked", []) == acked
    for part in ("logged", "errors"):
        texts, wanted_texts = understood.pop(part, []), expected.pop(part, [])
        assert len(texts) == len(wanted_texts)
        assert all(map(is_like, texts, wanted_texts))
    assert understood == expected


def is_like(text: Any, pattern: Any) -> bool:
    if isinstance(pattern, list):
        return all(map(is_like, text, pattern))
    if isinstance(pattern, dict):
        return pattern["contains"] in text
    return bool(text == pattern)


class ListedSpout(ShellSpout):
    """A spout that notes its own calls, and asks its process when the case does."""

    transient = ("understood", "nexts")

    def begin(self) -> ListedSpout:
        self.understood, self.nexts = Understood(), 0
        return self

    def emit(self, values: Any, *, stream: str = "default", msg_id: Any = None, **_: Any) -> Any:
        emitted = {"values": values, "stream": stream, "msg_id": msg_id[0]}
        self.understood.add("emitted", emitted)
        return [3]

    def room(self, most: int) -> int:
        nexts, self.nexts = self.nexts, 0
        return nexts


def run_spout_case(case: Case) -> None:
    command = [sys.executable, str(CHILDREN / "play.py"), steps_file(case)]
    spout = ListedSpout(command, ("value",), cwd=None).begin()
    commands = [s["parent"] for s in case["steps"] if isinstance(s.get("parent"), dict)]
    run = run_spout(spout, 0)  # which activates it
    answers = []
    try:
        for command in commands:
            if command["command"] == "next":
                spout.nexts = 1
            elif command["command"] == "deactivate":
                spout.deactivate()
            elif command["command"] != "activate":
                getattr(run, command["command"])((command["id"], 1))
            while spout.nexts or spout._asked:
                run.next()
            answers.append(spout.understood.take())
    finally:
        spout.close()
    expected = case["expect"]["by batch"]
    assert len(answers) == len(expected)
    assert all(map(is_understood, answers, expected)), answers


def is_understood(answer: Case, expected: Case) -> bool:
    logged, wanted_logs = answer.pop("logged", []), expected.get("logged", [])
    rest = {part: value for part, value in expected.items() if part != "logged"}
    return answer == rest and len(logged) == len(wanted_logs) and is_like(logged, wanted_logs)


def run_wire_case(case: Case) -> None:
    settings, expect = case["settings"], case["expect"]
    if "topology" in settings:
        check_handshake(case)
    elif "waiting" in settings:
        check_order(case)
    elif "written" in expect:
        check_written(case)
    else:
        check_read(settings["reader"], case["steps"][0]["bytes"].encode(), expect)


def test_the_mark_of_utf_8_before_the_first_message_is_no_text() -> None:
    wire = JsonWire()
    assert wire.decode(BOM_UTF8 + b'{"pid": 1}\n') == []
    assert wire.decode(b"end\n") == [{"pid": 1}]


def check_read(reader: str, data: bytes, expect: Case) -> None:
    """Read the bytes at once and byte by byte."""
    single, whole = JsonWire(), JsonWire().decode(data)
    assert [m for byte in data for m in single.decode(bytes([byte]))] == whole
    if "messages" in expect:
        assert whole == expect["messages"]
    elif "emit" in expect:
        emit = emit_of(whole[0])
        fields = ("stream", "values", "anchors", "task", "need_task_ids")
        assert {name: getattr(emit, name) for name in fields} == expect["emit"]
    elif "log" in expect:
        assert list(log_of(whole[0])) == expect["log"]
    else:
        check_heard(reader, whole[0], expect)


def check_heard(reader: str, message: Message, expect: Case) -> None:
    steps = [{"child": {"pid": 1}}, {"child": message}, {"child": {"command": "sync"}}]
    command = [sys.executable, str(CHILDREN / "play.py"), steps_file({"steps": steps})]
    if reader == "of what a spout writes":
        spout = ListedSpout(command, ("value",), cwd=None).begin()
        run = run_spout(spout, 0)
        try:
            with pytest.raises(ShellError) as caught:
                run.next(10**9)
        finally:
            spout.close()
    elif expect.get("ignored"):
        bolt = Bolt(command, ("value",), cwd=None).begin([])
        try:
            run_bolt(bolt).batch([])
            assert command_of(message) == "dance"
        finally:
            bolt.cleanup()
        return
    else:
        with pytest.raises(ShellError) as caught:
            command_of(message)
    assert caught.value.code == expect["error"]
    assert all(word in str(caught.value) for word in expect["words"])


def check_order(case: Case) -> None:
    heard = Surroundings.directory / "heard"
    process = ShellProcess(listener(heard), JsonWire(), None, {}, ("split", 1))
    process.send({"conf": {}, "pidDir": str(Surroundings.directory), "context": {}})
    while not process.exchange(1.0):  # the pid
        pass
    process.send({"tuple": "waiting"})
    process.answer([1, 2, 3])
    process.flush()
    process.close()
    assert heard_in(heard)[1:] == case["expect"]["order written"]


def listener(heard: Path) -> list[str]:
    return [sys.executable, str(CHILDREN / "listen.py"), str(heard)]


def heard_in(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def check_written(case: Case) -> None:
    heard = Surroundings.directory / "heard"
    bolt = Bolt(listener(heard), ("value",), cwd=None).begin([])
    run = run_bolt(bolt)
    run.batch([make_tick(case["settings"]["tick secs"])] if case["settings"] else [])
    bolt.cleanup()
    message = heard_in(heard)[1]
    assert isinstance(message.pop("id"), str)
    assert message == {k: v for k, v in case["expect"]["written"].items() if k != "id"}


class Words(Spout):
    outputs = ("sentence",)

    def next_tuple(self) -> None:
        """Have nothing."""

    def is_exhausted(self) -> bool:
        return True


class Count(BasicBolt):
    def execute(self, tup: Any) -> None:
        """Take the word."""


def check_handshake(case: Case) -> None:
    heard = Surroundings.directory / "heard"
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    split = ShellBolt(listener(heard), ("word",), cwd=None)
    builder.set_bolt("split", split).set_num_tasks(1).shuffle_grouping("words")
    builder.set_bolt("count", Count()).fields_grouping("split", "word")
    with TestCluster() as cluster:
        cluster.submit_topology("t", builder.create_topology()).settle()
    shaken = heard_in(heard)[0]
    assert list(shaken) == case["expect"]["has"]
    context, expected = shaken["context"], case["expect"]["context"]
    assert set(expected) <= set(context)
    assert set(context["task->component"].values()) == {"words", "split", "count"}
    assert context["task->component"][str(context["taskid"])] == "split"
    for key in expected.keys() - {"taskid", "task->component"}:
        assert context[key] == expected[key]
    assert shaken["conf"]["topology.name"] == "t"


RUNNERS: dict[str, Runner] = {
    "multilang-bolt": run_bolt_case,
    "multilang-spout": run_spout_case,
    "multilang-wire": run_wire_case,
}


@pytest.mark.parametrize("case", parameters(RUNNERS))
def test_case(case: Case) -> None:
    RUNNERS[case["kind"]](case)
