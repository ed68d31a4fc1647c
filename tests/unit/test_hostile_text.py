"""Text of strangers goes through everything that shows, sends or stores it, and changes nothing."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.unit.test_control_registry import make
from tests.unit.test_spark_execution import Slot
from tests.wiring import Fed, line
from topo import BasicBolt, Bolt, FailTuple, Spout, Tuple
from topo.cli.foreground import line_of
from topo.cli.output import to_json
from topo.engine.inline.run import InlineRun
from topo.errors import printable
from topo.logs.capture import LOG_DIR, keep_logs, shown_logs
from topo.logs.reader import LogReader, Wanted
from topo.manage.api import Management
from topo.manage.documents import plain
from topo.manage.files import write_json
from topo.manage.registry import Registry
from topo.metrics.prometheus import Exposed, exposition
from topo.tracking.server import AckerServer
from topo.tracking.transport import AckerTarget

TEXTS = {
    "a lone surrogate": "caf\udce9",
    "control characters": "a\x00b\x1b]0;x\x07\x85\u2028\r\n\tc",
    "markup": "<script>alert(1)</script>&amp;{{x}}${x}%s%(x)d{0}",
    "json": '{"status": "KILLED", "a": [1, null]}\n"}]',
    "an error of a stage": f"topo-error-{'0' * 64}:gASVAAAAAAAAAC4=;",
    "what spark says": "Caused by: x\n\tat org.apache.spark.Task 0 in stage 1.0 failed 4 times",
    "long": "x" * 300_000,
    "other controls": "\x9b31m\x7f\u202ereversed\u2066\u2069",
    "wide": "\U0001f600\u202e\ufeff\ufffe" * 50,
    "nothing": "",
}
COMMANDS = {chr(code) for code in (*range(32), *range(127, 160))} | set("\u202a\u202e\u2066\u2069")
"""What a terminal obeys."""


class Says(Spout):
    """Emits a text, with the text as its id."""

    outputs = ("text",)

    def __init__(self, text: str) -> None:
        self.text, self.left = text, 4

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.text], msg_id=(self.left, self.text))

    def is_exhausted(self) -> bool:
        return not self.left


class Tells(BasicBolt):
    """Tells the text in every way there is."""

    outputs = ("text",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.seen = 0

    def execute(self, tup: Tuple) -> None:
        self.seen += 1
        self.emit([tup.text])
        self.report_error(tup.text)
        self.report_error(ValueError(tup.text))
        logging.getLogger("mine").warning("%s", tup.text)
        print(tup.text)
        self.last = tup.text
        if self.seen == 2:
            raise FailTuple(tup.text, report=True)
        if self.seen == 3:
            raise LookupError(tup.text)


CONF = {"topology.uncaught.error": "fail", "topology.workers": 1}


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LOG_DIR, str(tmp_path))
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    return tmp_path


@contextmanager
def no_other_handlers() -> Iterator[None]:
    """Keep what is logged from pytest, whose reports cannot hold each text."""
    root = logging.getLogger()
    before, level, root.handlers = root.handlers, root.level, []
    try:
        yield
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers = before
        root.setLevel(level)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_inline_it_is_shown_stored_and_served(text: str, logs: Path) -> None:
    run = InlineRun("t", line(Says(text), Tells()), CONF, now=lambda: 0.0, record=True)
    with no_other_handlers():
        keep_logs("slot-0")
        for _ in range(20):
            run.step()
    assert run.status == "COMPLETED"
    assert run.tuples("b1") == [[text]] * 4
    assert sorted(msg_id[1] for msg_id in run.acked["s"] + run.failed["s"]) == [text] * 4
    assert len(run.failed["s"]) == 2
    seen = list(LogReader(logs, Wanted()).read())
    assert len([entry for entry in seen if entry["logger"] == "mine"]) == 4
    shown(run.stats(), run.errors(), logs)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_on_spark_it_travels_with_frames_reports_and_verdicts(text: str) -> None:
    with (
        AckerServer() as server,
        mock.patch.dict("tests.unit.test_spark_execution.CONF", CONF),
        no_other_handlers(),
    ):
        target = AckerTarget("t", "token", (server.address,), give_up_secs=1)
        slot = Slot(target, line(Says(text), Tells()))
        for _ in range(8):
            slot.batch()
            slot.new_process()  # from what was saved
        assert slot.emitted("b1") == [[text]] * 4
        assert slot.control.status().pending == 0
        assert sum(slot.control.status().failed_by.values()) == 2


def shown(stats: Any, errors: Any, directory: Path) -> None:
    """Pass figures and errors through every way out."""
    document = {"stats": plain(stats), "errors": plain(errors)}
    write_json(directory / "errors.json", document["errors"])
    assert len(json.loads((directory / "errors.json").read_bytes())) == len(errors)
    assert json.loads(to_json(document)) is not None
    assert not COMMANDS & set(to_json(document))
    exposition([Exposed("t", "ACTIVE", document["stats"], document["errors"])], "")
    for error in errors:
        assert COMMANDS & set(printable(error.message)) <= {"\n", "\t"}
        printable(error.message).encode()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_row_that_is_shown_is_one_line_of_json(text: str) -> None:
    shown_line = line_of({"component": "b", "stream": "default", "task": 1, "values": [text]})
    shown_line.encode()
    assert not COMMANDS & set(shown_line)
    assert json.loads(shown_line)["values"] in ([text], [repr(text)])


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_log_record_that_is_shown_commands_no_terminal(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # no report could hold the text
    with shown_logs("INFO"):
        logging.getLogger("user").warning("%s", text)
    shown = capsys.readouterr().err
    assert shown.startswith("WARNING user: ")
    assert COMMANDS & set(shown) <= {"\n", "\t"}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_reason_of_a_run_is_written_and_read(text: str, tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    run = make(registry)
    state = {"status": "FAILED", "reason": text, "traceback": text, "hint": text}
    write_json(run.directory / "state.json", state)
    assert registry.reload(run).reason == text
    (row,) = Management(registry).topologies().topologies
    assert json.loads(to_json(row))["reason"] == text


class Silent:
    """Something whose text cannot be had."""

    def __str__(self) -> str:
        raise AttributeError("no")

    __repr__ = __str__


class Gives(Bolt):
    def execute(self, tup: Tuple) -> None:
        self.report_error(Silent())  # type: ignore[arg-type]
        self.fail(tup, reason=tup.x)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Silent(), "<a Silent, which cannot be shown>"),
        (ValueError("no cow"), "no cow"),
        ("caf\udce9", r"caf\udce9"),
        (0, "0"),
        ("", ""),
    ],
)
def test_a_reason_may_be_anything(reason: Any, said: str) -> None:
    fed = Fed(Gives()).feed(reason)
    where = "failed by 'b1' task 1"
    assert list(fed.feeder.reasons.values()) == [f"{where}: {said}" if said else where]
    reported = [error.message for error in fed.run.errors() if error.kind == "reported"]
    assert reported == ["<a Silent, which cannot be shown>"]
