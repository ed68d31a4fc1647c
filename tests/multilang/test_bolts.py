"""Bolts in other processes: whole topologies, and processes that die, hang or write rubbish."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.multilang.started import started
from topo import BasicBolt, TopologyBuilder, Tuple
from topo.errors import ComponentError, EmitError, ShellError
from topo.multilang import ShellBolt
from topo.multilang.process import ShellProcess
from topo.testing import FeederSpout, TestCluster, complete_topology, make_tuple, run_bolt

CHILDREN = Path(__file__).parent / "children"


def command(name: str, *args: object) -> list[str]:
    return [sys.executable, f"{name}.py", *map(str, args)]


def shell(name: str, *args: object, **options: Any) -> ShellBolt:
    return ShellBolt(command(name, *args), ("word",), cwd="children", **options)


@pytest.fixture
def run_of() -> Iterator[Callable[..., Any]]:
    """Run a bolt alone, and end its process."""
    bolts: list[ShellBolt] = []

    def run(bolt: ShellBolt, lines: list[str], **conf: Any) -> Any:
        bolts.append(bolt)
        return run_bolt(bolt, [make_tuple([line]) for line in lines], conf)

    yield run
    for bolt in bolts:
        bolt.cleanup()


class Count(BasicBolt):
    outputs = ("word", "count")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        self.counts[tup[0]] = self.counts.get(tup[0], 0) + 1
        self.emit([tup[0], self.counts[tup[0]]])


def test_words_are_counted() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", FeederSpout("line"))
    builder.set_bolt("split", shell("split"), 2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), 2).fields_grouping("split", "word")
    lines = [["the cow jumped over the moon"], ["the dog"]] * 50
    result = complete_topology(builder.create_topology(), mock_sources={"lines": lines})
    counts: dict[str, int] = {}
    for word, count in result.tuples("count"):
        counts[word] = max(count, counts.get(word, 0))
    assert counts == {"the": 150, "cow": 50, "jumped": 50, "over": 50, "moon": 50, "dog": 50}
    assert len(result.acked["lines"]) == 100
    assert not started()


def test_a_process_ends_after_the_look_at_it(
    run_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that watches it is not disturbed between two of its steps."""
    looks, may_go_on = threading.Event(), threading.Event()
    faults: list[BaseException] = []

    def slow_look(self: ShellBolt, process: ShellProcess) -> None:
        looks.set()
        may_go_on.wait(60)
        try:
            process.exchange()
        except BaseException as fault:
            faults.append(fault)

    monkeypatch.setattr(ShellBolt, "_look", slow_look)
    bolt = shell("split")
    run_of(bolt, ["a b"])
    assert looks.wait(60)
    ends = threading.Thread(target=bolt.cleanup)
    ends.start()
    ends.join(0.1)
    assert ends.is_alive()
    may_go_on.set()
    ends.join(60)
    assert not faults
    assert not started()


def test_the_files_of_a_component_travel(tmp_path: Path) -> None:
    """The process runs in a copy: the directory may change, or not be there where it runs."""
    (tmp_path / "resources").mkdir()
    for name in ("split.py", "wire.py"):
        (tmp_path / "resources" / name).write_bytes((CHILDREN / name).read_bytes())
    bolt = ShellBolt(command("split"), ("word",), cwd=tmp_path / "resources")
    builder = TopologyBuilder()
    builder.set_spout("lines", FeederSpout("line"))
    builder.set_bolt("split", bolt).shuffle_grouping("lines")
    topology = builder.create_topology()
    (tmp_path / "resources" / "split.py").unlink()
    result = complete_topology(topology, mock_sources={"lines": [["a b"]]})
    assert result.tuples("split") == [["a"], ["b"]]


def test_too_much_beside_the_component_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.multilang.files._MOST_BYTES", 10)
    (tmp_path / "large").write_text("x" * 11)
    with pytest.raises(ComponentError, match="more than 0 MB"):
        ShellBolt(["cat"], cwd=tmp_path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ShellBolt("node split.js"), "it is a list of texts"),
        (lambda: ShellBolt([]), "it is a list of texts"),
        (lambda: ShellBolt(["node"], serializer="jsn"), "did you mean 'json'"),
        (lambda: ShellBolt(["node"], cwd="nowhere"), "there is no directory"),
    ],
)
def test_arguments_that_cannot_be(make: Callable[[], ShellBolt], words: str) -> None:
    with pytest.raises(ComponentError, match=words):
        make()


def test_a_program_that_is_not_there(run_of: Callable[..., Any]) -> None:
    with pytest.raises(ShellError, match=r"`nodee x.js` cannot be started on .*no such program"):
        run_of(ShellBolt(["nodee", "x.js"], cwd=None), [])


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("garbage", "unreadable", ["this is no message", "stdout belongs to the protocol"]),
        ("half", "shell-ended", ["ended with exit code 0 within a message", '{"command": "em']),
        ("endless", "unreadable", ["more than 64 MB"]),
        ("prints", "unreadable", ["is no message", "connecting to db-1", "print to stderr"]),
        ("stops", "shell-silent", ["has said nothing for", "begins with", '{"command": "emit"']),
        ("silent", "shell-silent", ["has said nothing for", "topology.subprocess.timeout.secs"]),
        ("deaf", "shell-silent", ["has said nothing for"]),
        ("mute", "shell-ended", ["has closed its stdout, and runs on"]),
        ("dies", "shell-ended", ["exit code 7", "no room for bad", "the disk is full"]),
    ],
)
def test_a_process_that_misbehaves_stops_the_topology(
    run_of: Callable[..., Any], line: str, code: str, words: list[str]
) -> None:
    bolt = shell("misbehave")
    with pytest.raises(ShellError) as caught:
        run_of(bolt, ["good", line], **{"topology.subprocess.timeout.secs": 0.5})
    assert caught.value.code == code
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not started()


def test_a_message_of_megabytes_goes_both_ways(run_of: Callable[..., Any]) -> None:
    run = run_of(shell("misbehave"), ["large", "x" * (3 << 20)])
    assert run.emitted == [["y" * (3 << 20)], [3 << 20]]


def test_an_emit_that_does_not_fit_names_what_does(run_of: Callable[..., Any]) -> None:
    with pytest.raises(EmitError, match="2 values"):
        run_of(shell("misbehave"), ["wide"])


def test_a_misspelt_stream_fails_the_tuple_if_errors_do(run_of: Callable[..., Any]) -> None:
    conf = {"topology.uncaught.error": "fail"}
    run = run_of(shell("misbehave"), ["good", "unknown_stream", "good"], **conf)
    assert run.emitted == [[4], [4]]
    assert len(run.failed) == 1
    assert "wrods" in str(run.errors[0])


def test_a_value_that_json_has_not(run_of: Callable[..., Any]) -> None:
    with pytest.raises(ComponentError, match=r"which cannot be sent to .* as json: .*datetime"):
        run_of(shell("split"), [datetime(2026, 1, 1)])


def test_lines_of_stderr_are_logged(
    run_of: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "topo.multilang")
    with pytest.raises(ShellError):
        run_of(shell("misbehave"), ["dies"])
    assert "stderr: the disk is full" in caplog.messages


def test_the_environment_of_the_process(run_of: Callable[..., Any], tmp_path: Path) -> None:
    bolt = shell("listen", tmp_path / "heard", env={"PYTHONDONTWRITEBYTECODE": 1})
    run_of(bolt, [])
    while not (tmp_path / "heard").exists() or not (tmp_path / "heard").read_text():
        time.sleep(0.01)
    process = started()[0]
    assert process.environ()["PYTHONDONTWRITEBYTECODE"] == "1"


def feed(bolt: ShellBolt) -> tuple[FeederSpout, Any]:
    lines = FeederSpout("line")
    builder = TopologyBuilder()
    builder.set_spout("lines", lines)
    builder.set_bolt("shell", bolt).shuffle_grouping("lines")
    return lines, builder.create_topology()


def test_a_lost_process_fails_its_tuples_and_another_one_starts(tmp_path: Path) -> None:
    lines, topology = feed(shell("misbehave", tmp_path / "mark"))
    conf = {"topology.uncaught.error": "fail"}
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", topology, conf)
        for line in ("good", "dies_once", "nice"):
            lines.feed([line], msg_id=line)
        run.settle()
        assert set(lines.acked) | set(lines.failed) == {"good", "dies_once", "nice"}
        assert "exit code 7" in lines.reasons["dies_once"]
        lines.feed(["again"], msg_id="again")
        run.settle()
        while "again" not in lines.acked and cluster.await_calls():
            run.settle()
        assert "again" in lines.acked
        assert any("no room for bad" in error.message for error in run.errors())


def test_a_process_that_was_held_up_gets_its_tuples_again(tmp_path: Path) -> None:
    lines, topology = feed(shell("misbehave"))
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", topology)
        lines.feed(["holds 1"], msg_id=1)
        lines.feed(["holds 2"], msg_id=2)
        run.settle()
        assert not lines.acked
        (first,) = started()
        run.restart()
        lines.feed(["lets_go"], msg_id=3)
        run.settle()
        assert sorted(lines.acked) == [1, 2, 3]
        (second,) = started()
        assert second.pid != first.pid
        rows = [row[0] for row in run.tuples("shell")]
        assert rows == [f"{second.pid} {line}" for line in ("holds 1", "holds 2", "lets_go")]


def test_a_failed_run_leaves_no_process() -> None:
    lines, topology = feed(shell("misbehave"))
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", topology)
        lines.feed(["dies"], msg_id=1)
        with pytest.raises(ShellError, match="exit code 7"):
            run.settle()
    assert not started()


def test_many_unanswered_tuples_are_waited_for(run_of: Callable[..., Any]) -> None:
    run = run_of(shell("split"), ["a b"] * 25, **{"topology.shellbolt.max.pending": 10})
    assert len(run.emitted) == 50
    assert run.pending == []


def test_subclasses_declare_as_any_component_does(run_of: Callable[..., Any]) -> None:
    class Split(ShellBolt):
        outputs = ("word",)
        transient = "mine"

        def __init__(self) -> None:
            super().__init__(command("split"), cwd="children", config={"app.k": 1})

    bolt = Split()
    assert "mine" in bolt.transient
    assert "_process" in bolt.transient
    assert bolt.get_component_configuration() == {"app.k": 1}
    assert run_of(bolt, ["a b"]).emitted == [["a"], ["b"]]
    assert os.path.samefile(bolt._files.open() or "", CHILDREN)
