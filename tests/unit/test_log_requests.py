"""Log levels and samples of tuples that are asked for while a topology runs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Numbers
from tests.unit.test_spark_execution import Slot
from tests.wiring import line
from topo import BasicBolt, Tuple
from topo.config.secrets import masked
from topo.logs.capture import LOG_DIR, JsonLines
from topo.logs.reader import LogReader, Wanted
from topo.logs.requests import (
    FILE,
    AskedLevel,
    LogRequests,
    Requests,
    Sample,
    as_document,
    read_requests,
)
from topo.tracking.server import AckerServer
from topo.tracking.transport import AckerTarget

LATER = 1e12


class Logs(BasicBolt):
    """A bolt that logs its input and passes it on."""

    outputs = ("num", "password")

    def execute(self, tup: Tuple) -> None:
        logging.getLogger("mine").debug("saw %s", tup.num)
        self.emit([tup.num * 10, "hunter2"])


class Ends(BasicBolt):
    """The last bolt."""

    def execute(self, tup: Tuple) -> None: ...


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a log that this process writes."""
    monkeypatch.setenv(LOG_DIR, str(tmp_path))
    handler = JsonLines(tmp_path / "slot-0.jsonl")
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield tmp_path
    root.removeHandler(handler)
    root.setLevel(before)
    handler.close()


def ask(directory: Path, requests: Requests) -> None:
    """Write requests as the management API does."""
    temporary = directory / "new"
    temporary.write_text(json.dumps(as_document(requests)))
    temporary.rename(directory / FILE)


def lines(directory: Path) -> list[tuple[str, int, str]]:
    """Return component, task and message of each line."""
    found = LogReader(directory, Wanted("DEBUG")).last(100)
    return [(line["component"], line["task"], line["message"]) for line in found]


def test_requests_are_met_by_a_slot_from_its_next_batch_on(logs: Path) -> None:
    with AckerServer() as server:
        target = AckerTarget("t", "token", (server.address,), give_up_secs=1)
        slot = Slot(target, line(Numbers(12), Logs(), Ends()), capture=False)
        slot.batch()
        assert lines(logs) == []
        ask(logs, Requests({"mine": AskedLevel("DEBUG", LATER)}, (Sample("b1", 5, LATER),)))
        slot.batch()
        assert lines(logs) == [
            ("b1", 1, "saw 2"),
            ("b1", 1, "saw 3"),
            ("b1", 1, "sample of default: num=20, password='***'"),
            ("b1", 1, "sample of default: num=30, password='***'"),
        ]
        ask(logs, Requests())
        slot.batch()
        assert len(lines(logs)) == 4


class LastAndKeeping(BasicBolt):
    """The last bolt, whose stream nobody reads, and which is not rewritten: it keeps its tuple."""

    outputs = ("num",)

    def execute(self, tup: Tuple) -> None:
        self.latest = tup
        self.emit([tup.num])


def test_a_sample_shows_what_no_bolt_reads(logs: Path) -> None:
    with AckerServer() as server:
        target = AckerTarget("t", "token", (server.address,), give_up_secs=1)
        slot = Slot(target, line(Numbers(12), LastAndKeeping()), capture=False)
        slot.batch()
        ask(logs, Requests({}, (Sample("b1", 5, LATER),)))
        slot.batch()
        assert [message for _, _, message in lines(logs)] == [
            "sample of default: num=2",
            "sample of default: num=3",
        ]
        ask(logs, Requests())
        slot.batch()
        assert len(lines(logs)) == 2


class Outlet:
    """An emitter of one stream."""

    hear: Any = None

    def listen(self, hear: Any) -> None:
        self.hear = hear

    def fields_of(self, name: str) -> tuple[str, ...]:
        return ("word", "token")


class Emitting:
    """A task that emits."""

    component_id = "split"

    def __init__(self, task: int = 1) -> None:
        self.id = task
        self.outlet = Outlet()


def test_a_sample_has_so_many_a_second_and_ends(logs: Path, monkeypatch: Any) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    requests, task, other = LogRequests(masked), Emitting(), Emitting(2)
    other.component_id = "count"
    ask(logs, Requests({}, (Sample("split", 3, 1010.0),)))
    requests.meet([task, other])
    assert other.outlet.hear is None
    task.outlet.hear("default", 1, [["w", "t"]] * 100)
    assert len(lines(logs)) == 3
    now[0] += 1
    task.outlet.hear("default", 1, [["w", "t"]] * 100)
    assert len(lines(logs)) == 6
    again = Emitting()
    requests.meet([again])  # the instances were made anew
    assert again.outlet.hear is not None
    now[0] += 20
    requests.meet([again])
    assert again.outlet.hear is None


def test_a_level_is_taken_back_in_time(logs: Path, monkeypatch: Any) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    logger = logging.getLogger("mine.too")
    logger.setLevel(logging.ERROR)
    requests = LogRequests(masked)
    ask(
        logs, Requests({"mine.too": AskedLevel("DEBUG", 1010.0), "": AskedLevel("WARNING", 1005.0)})
    )
    requests.meet([])
    assert (logger.level, logging.getLogger().level) == (logging.DEBUG, logging.WARNING)
    now[0] += 7
    requests.meet([])
    assert (logger.level, logging.getLogger().level) == (logging.DEBUG, logging.INFO)
    now[0] += 7
    requests.meet([])
    assert logger.level == logging.ERROR


class Odd:
    """A value whose repr raises."""

    def __repr__(self) -> str:
        raise ValueError


def test_odd_values_are_cut_and_never_raise(logs: Path) -> None:
    requests, task = LogRequests(masked), Emitting()
    ask(logs, Requests({}, (Sample("split", 5, LATER),)))
    requests.meet([task])
    task.outlet.hear("default", 1, [["x" * 10_000, Odd()], [Odd()], ["\ud800", "\n"]])
    messages = [message for _, _, message in lines(logs)]
    assert len(messages) == 3
    assert len(messages[0]) < 300
    assert "whose repr raised ValueError" in messages[1]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"levels": 3, "samples": []}', '{"levels": {}, "samples": [1]}']
)
def test_a_damaged_file_asks_for_nothing(logs: Path, text: str) -> None:
    (logs / FILE).write_text(text)
    assert read_requests(logs) == Requests()
    LogRequests(masked).meet([Emitting()])


def test_without_a_log_there_is_nothing_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOG_DIR, raising=False)
    task = Emitting()
    LogRequests(masked).meet([task])
    assert task.outlet.hear is None
