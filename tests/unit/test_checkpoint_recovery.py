"""A checkpoint that a power cut has torn is cut back to the last batch that is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topo.errors import CheckpointError
from topo.storage.recovery import cut_back

LEVELS, SLOTS, BATCHES = 2, 2, 6


def written(directory: Path, batches: int = BATCHES, *, started: bool = True) -> list[Path]:
    """A checkpoint of Spark's, its files in the order in which they were written."""
    files = []

    def put(name: str, text: str) -> None:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        files.append(path)

    for batch in range(batches + started):
        put(f"offsets/{batch}", 'v1\n{"batchTimestampMs":1}\n{"offset":1}')
        for level in range(LEVELS):
            for slot in range(SLOTS):
                end = "zip" if batch % 3 == 2 else "changelog"
                put(f"state/{level}/{slot}/default/{batch + 1}_0a84-{batch}.{end}", "v2 state")
        if batch < batches:
            put(f"commits/{batch}", 'v2\n{"stateUniqueIds":{}}')
    return files


def numbers(directory: Path, name: str) -> list[int]:
    return sorted(int(path.name) for path in (directory / name).iterdir())


def test_a_whole_one_is_left_alone(tmp_path: Path) -> None:
    files = written(tmp_path)
    assert cut_back(tmp_path) is None
    assert cut_back(tmp_path / "nowhere") is None
    assert all(path.exists() for path in files)


@pytest.mark.parametrize(
    ("torn", "commits", "offsets"),
    [
        (["commits/5"], 5, 6),
        (["commits/5", "offsets/6"], 5, 6),
        (["offsets/6"], 6, 6),
        (["offsets/5", "commits/5", "offsets/6"], 5, 5),
        (["state/1/0/default/6_0a84-5.zip"], 5, 6),
        (["state/1/0/default/4_0a84-3.changelog"], 6, 7),  # of a batch that later ones follow
        (["state/0/1/default/7_0a84-6.changelog"], 6, 7),  # of one that runs again
    ],
)
@pytest.mark.parametrize("content", ["", "v2", "v2\n{"])
def test_what_is_torn_is_taken_back(
    tmp_path: Path, torn: list[str], commits: int, offsets: int, content: str
) -> None:
    written(tmp_path)
    for name in torn:
        (tmp_path / name).write_text("" if name.startswith("state") else content)
    lost = cut_back(tmp_path)
    assert numbers(tmp_path, "commits") == list(range(commits))
    assert numbers(tmp_path, "offsets") == list(range(offsets))
    assert lost == (None if commits == BATCHES else (commits - 1, BATCHES - 1))
    assert cut_back(tmp_path) is None


def removed(directory: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in directory.glob(pattern):
            path.unlink()


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        (["commits/*"], "batch 6 has begun, and no commit is there"),
        (["commits/*", "offsets/[1-6]"], "there is state of batch 6, and no commit is there"),
        (["commits/*", "offsets/*"], "there is state of batch 6, and no commit is there"),
        (["commits/[345]"], "batch 6 has begun, and the last commit is that of batch 2"),
    ],
)
def test_a_part_that_no_power_cut_takes_is_missed(
    tmp_path: Path, gone: list[str], why: str
) -> None:
    written(tmp_path)
    removed(tmp_path, *gone)
    left = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        with pytest.raises(CheckpointError, match=f"has lost a part of itself: {why}"):
            cut_back(tmp_path)
    assert sorted(tmp_path.rglob("*")) == left


def test_what_was_committed_is_not_cut_back_to_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    for path in (tmp_path / "commits").iterdir():
        path.write_text("")
    with pytest.raises(CheckpointError, match="batch 5 was committed, and no batch is whole"):
        cut_back(tmp_path)
    assert numbers(tmp_path, "offsets") == list(range(7))


def test_a_first_batch_that_never_committed_begins_again(tmp_path: Path) -> None:
    written(tmp_path, batches=0)
    assert cut_back(tmp_path) is None
    (tmp_path / "offsets" / "0").write_text("")
    assert cut_back(tmp_path) is None
    assert numbers(tmp_path, "offsets") == []


@settings(max_examples=40)
@given(st.data())
def test_wherever_the_power_goes_a_whole_batch_is_left(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Everything written before some moment is on the disk, of the rest any part is.

    Only a cut in the first seconds, or one that took names in between, is not mended but refused.
    """
    directory = tmp_path_factory.mktemp("cut")
    files = written(directory, 4)
    synced = data.draw(st.integers(0, len(files)))
    has_gaps = False
    for path in files[synced:]:
        fate = data.draw(st.sampled_from(["whole", "empty", "gone", "cut"]))
        if fate == "gone":
            path.unlink()
            has_gaps |= path.parent.name == "commits"
        elif fate != "whole":
            path.write_text("" if fate == "empty" else "v2")
    durable = [path for path in files[:synced] if path.parent.name == "commits"]
    try:
        cut_back(directory)
    except CheckpointError:
        assert has_gaps or not durable
        return
    commits = numbers(directory, "commits") if (directory / "commits").exists() else []
    offsets = numbers(directory, "offsets") if (directory / "offsets").exists() else []
    last = max(commits, default=-1)
    assert last >= len(durable) - 1, "no batch that was on the disk is taken back"
    assert [n for n in offsets if n > last + 1] == []
    for number in {last, *[n for n in offsets if n > last]} - {-1}:
        assert (directory / "offsets" / str(number)).read_text().startswith("v1\n{")
