"""Frames on their way from slot to slot: in rows, or in files with the word where in rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.engine.spark.driver.query_errors import is_passing
from topo.engine.spark.worker.messages import Payload
from topo.engine.spark.worker.spool import FramesLost, Spool, each_frame

FRAMES = [b"\1" + bytes([number]) * 40 for number in range(5)]


def send(spool: Spool, batch: int, frames: list[bytes] = FRAMES) -> list[tuple[int, int, Payload]]:
    with spool.begin(batch) as bundle:
        for number, frame in enumerate(frames):
            bundle.add(number % 2, 1, frame)
    return bundle.sends()


def received(sends: list[tuple[int, int, Payload]], slot: int) -> list[bytes]:
    return [bytes(frame) for frame in each_frame(data for to, _, data in sends if to == slot)]


def test_a_little_goes_in_the_rows_themselves(tmp_path: Path) -> None:
    sends = send(Spool(str(tmp_path), 0, 1000), 7)
    assert sends == [(number % 2, 1, frame) for number, frame in enumerate(FRAMES)]
    assert not [*tmp_path.iterdir()]


def test_much_goes_by_one_file_and_the_rows_are_small(tmp_path: Path) -> None:
    big = [frame * 1000 for frame in FRAMES]
    sends = send(Spool(str(tmp_path), 0, 100), 7, big)
    assert len([*tmp_path.iterdir()]) == 1
    assert max(len(data) for _, _, data in sends) < 500
    assert received(sends, 0) == big[0::2]
    assert received(sends, 1) == big[1::2]


def test_what_fits_stays_in_rows_and_the_rest_goes_by_file(tmp_path: Path) -> None:
    sends = send(Spool(str(tmp_path), 0, 100), 7)
    assert sends[:2] == [(0, 1, FRAMES[0]), (1, 1, FRAMES[1])]
    assert len(sends) == 4
    assert received(sends, 0) == FRAMES[0::2]
    assert received(sends, 1) == FRAMES[1::2]


def test_without_a_directory_everything_goes_in_rows() -> None:
    assert len(send(Spool("", 0, 0), 7)) == len(FRAMES)


def test_files_stay_for_every_attempt_at_their_batch_and_go_with_a_later_one(
    tmp_path: Path,
) -> None:
    spool, other = Spool(str(tmp_path), 0, 0), Spool(str(tmp_path), 10, 0)
    first, again, others = send(spool, 9), send(spool, 9), send(other, 9)
    assert received(first, 0) == received(again, 0) == FRAMES[0::2]
    send(spool, 10)
    assert received(others, 1) == FRAMES[1::2]
    with pytest.raises(FramesLost, match="gone: frames-0-9-"):
        received(first, 0)


def test_a_process_that_was_started_again_clears_up_after_the_one_before(tmp_path: Path) -> None:
    orphans = send(Spool(str(tmp_path), 0, 0), 9)
    spool = Spool(str(tmp_path), 0, 0)
    spool.begin(9)
    assert received(orphans, 0) == FRAMES[0::2]
    spool.begin(10)
    assert not [*tmp_path.iterdir()]


def test_an_execution_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> None:
        with Spool(str(tmp_path), 0, 0).begin(3) as bundle:
            bundle.add(0, 1, FRAMES[0])
            raise LookupError

    with pytest.raises(LookupError):
        failing()
    assert not [*tmp_path.iterdir()]


def test_frames_read_stay_readable_when_their_file_goes(tmp_path: Path) -> None:
    frames = [*each_frame([data for _, _, data in send(Spool(str(tmp_path), 0, 0), 3)])]
    next(tmp_path.iterdir()).unlink()
    assert sorted(map(bytes, frames)) == sorted(FRAMES)


def test_lost_frames_are_made_again_from_the_last_commit() -> None:
    assert is_passing(FramesLost("gone"))


def test_a_directory_that_takes_no_frames_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "file" / "gone"
    (tmp_path / "file").write_text("")
    with pytest.raises(FramesLost, match="cannot be written: not a directory") as caught:
        send(Spool(str(gone), 0, 0), 3)
    assert caught.value.at == str(gone)
    assert "TMPDIR" in caught.value.hint


def test_a_directory_that_was_cleaned_away_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "topo-run"
    directory.mkdir()
    spool = Spool(str(directory), 0, 0)
    directory.rmdir()
    with spool.begin(0) as bundle:
        bundle.add(0, 1, b"a frame")
    ((_, _, payload),) = bundle.sends()
    assert [bytes(frame) for frame in each_frame([payload])] == [b"a frame"]
