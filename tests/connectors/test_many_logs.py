"""FileSpout over more logs than it can look at for each page: the work follows what has grown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topo.connectors.files import FileSpout, spout
from topo.connectors.files.listing import ListedFile, look_at
from topo.connectors.files.turns import Turns
from topo.testing import SpoutRun, run_spout

LOGS = 300
LOOKS: list[str] = []


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return logs with a line each; note whenever the spout looks at one of them by itself."""

    def noted(path: str) -> ListedFile | None:
        LOOKS.append(path)
        return look_at(path)

    monkeypatch.setattr(spout, "look_at", noted)
    LOOKS.clear()
    paths = [tmp_path / f"app{number:03}.log" for number in range(LOGS)]
    for number, path in enumerate(paths):
        path.write_text(f"{number}\n")
    return paths


def followed(logs: list[Path], calls: int = LOGS, **settings: Any) -> tuple[SpoutRun, list[str]]:
    """Return a run that has read all there is, and the lines that it has emitted."""
    run = run_spout(FileSpout(logs[0].parent / "*.log", mode="tail", **settings), calls)
    return run, lines(run)


def lines(run: SpoutRun) -> list[str]:
    return [emitted[0] for emitted in run.emitted]


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_all_logs_are_read_with_a_look_or_two_at_each(logs: list[Path]) -> None:
    _, read = followed(logs)
    assert sorted(map(int, read)) == [*range(LOGS)]
    assert len(LOOKS) < 3 * LOGS


def test_a_call_with_nothing_new_looks_at_some_logs_alone(logs: list[Path]) -> None:
    run, _ = followed(logs)
    LOOKS.clear()
    run.next(10)
    assert 0 < len(LOOKS) <= 10 * 100


def test_a_log_that_is_written_again_and_again_is_read_at_once(logs: list[Path]) -> None:
    run, read = followed(logs)
    add(logs[7], "first\n")
    run.next(LOGS)
    for number in range(5):
        LOOKS.clear()
        add(logs[7], f"{number}\n")
        assert lines(run.next(1))[-1] == str(number)
        assert len(LOOKS) <= 100
    assert len(lines(run)) == len(read) + 6


def test_each_log_has_its_turn_between_two_listings(logs: list[Path]) -> None:
    run, read = followed(logs, list_secs=1e9)
    for place in (LOGS - 1, 0, 150):
        add(logs[place], f"more of {place}\n")
        run.next(10)
        assert lines(run)[-1] == f"more of {place}"
    assert len(lines(run)) == len(read) + 3


def test_a_listing_tells_of_each_log_that_has_grown(logs: list[Path]) -> None:
    for path in logs[100:]:
        path.unlink()
    run, read = followed(logs[:100], calls=100, list_secs=0.0)
    for path in logs[:100:10]:
        add(path, "more\n")
    assert lines(run.next(10))[len(read) :] == ["more"] * 10


def test_what_was_truncated_among_many_is_read_anew(logs: list[Path]) -> None:
    run, _ = followed(logs, list_secs=1e9)
    logs[200].write_text("x\n")
    run.next(10)
    assert lines(run)[-1] == "x"


def test_a_log_keeps_its_turn_until_all_of_it_is_read(logs: list[Path]) -> None:
    run, _ = followed(logs, page=2)
    add(logs[3], "a\nb\nc\nd\ne\n")
    add(logs[4], "f\n")
    run.next(10)
    assert lines(run)[-6:] == ["a", "b", "c", "d", "e", "f"]


def test_logs_that_are_few_are_all_looked_at_in_their_order() -> None:
    listed = [ListedFile(f"/{place}", 1, 0.0, place, "") for place in range(64)]
    turns = Turns()
    turns.set_logs(listed, [])
    for _ in range(3):
        turns.begin()
        seen = []
        while (log := turns.first()) is not None:
            seen.append(log)
            turns.pass_on()
        assert seen == listed
