"""The damage of a power cut to a checkpoint, and the last batch of it that is whole.

A process that is killed leaves whole files: they appear by a rename. A machine that loses its power
may leave names whose content was never written, empty or cut, for what was written in the last
seconds before, unless `topology.checkpoint.sync` is set. Spark refuses such a checkpoint for good;
the state of the batches before is all there.

A checkpoint that has lost a part in another way, as in a copy that broke off, is refused: to take
back what follows no commit would be to begin anew, and what was acked would be lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from topo.errors import CheckpointError

_VERSION = re.compile(r"(\d+)[._]")


def cut_back(directory: Path) -> tuple[int, int] | None:
    """Take back the batches at the end that are not whole; return (last whole, last there).

    None: all is whole, or nothing was committed. Raises CheckpointError, and changes nothing, if
    parts are missing that no power cut takes.
    """
    commits, offsets = _numbers(directory / "commits"), _numbers(directory / "offsets")
    last = commits[-1] if commits else -1
    if offsets and offsets[-1] > last + 1:
        raise incomplete(directory, f"batch {offsets[-1]} has begun, and {_latest(last)}")
    if last < 0 and (version := _latest_state(directory)) > 1:
        raise incomplete(directory, f"there is state of batch {version - 1}, and {_latest(last)}")
    whole = last
    while whole >= 0 and not _is_whole(directory, whole):
        whole -= 1
        while whole >= 0 and whole not in commits:
            whole -= 1
    if whole < 0 <= last:
        raise incomplete(directory, f"batch {last} was committed, and no batch is whole")
    started = [number for number in offsets if number > whole]
    torn = [n for n in started if n > whole + 1 or not _is_log(directory / "offsets" / str(n))]
    if whole == last and not torn:
        return None
    for number in reversed(torn):  # the last first: what is left is a log without gaps
        _delete(directory / "offsets", number)
    for number in reversed([number for number in commits if number > whole]):
        _delete(directory / "commits", number)
    return (whole, last) if whole < last else None


def incomplete(directory: Path | str, what: str) -> CheckpointError:
    """Return the error for a checkpoint that has lost what it resumes from."""
    return CheckpointError(
        f"{directory} has lost a part of itself: {what}",
        at=str(directory),
        hint="bring back a whole copy and submit with --resume, or begin anew with --fresh",
        code="checkpoint-incomplete",
    )


def _latest(commit: int) -> str:
    return "no commit is there" if commit < 0 else f"the last commit is that of batch {commit}"


def _latest_state(directory: Path) -> int:
    """Return the highest version that any store has a file of; 0 if there is no state."""
    files = (path for place in (directory / "state").glob("*/[0-9]*") for path in place.rglob("*"))
    versions = (_VERSION.match(path.name) for path in files)
    return max((int(each[1]) for each in versions if each), default=0)


def _is_whole(directory: Path, batch: int) -> bool:
    """Return True if a batch was committed, and all that it wrote has a content."""
    logs = (directory / "commits" / str(batch), directory / "offsets" / str(batch))
    if not all(map(_is_log, logs)):
        return False
    return all(file.stat().st_size for file in _state_files(directory, batch + 1))


def _state_files(directory: Path, version: int) -> Iterator[Path]:
    """Yield the files in which the stores of every level and slot have this version."""
    for place in (directory / "state").glob("*/[0-9]*"):
        yield from place.rglob(f"{version}[._]*")


def _is_log(path: Path) -> bool:
    """Return True for a file of Spark's: its version, then a line of JSON for each part."""
    try:
        version, *lines = path.read_text(encoding="utf-8").splitlines()
        for line in filter(None, lines):
            if line != "-":  # a source that has nothing
                json.loads(line)
    except (OSError, ValueError):
        return False
    return version.startswith("v") and bool(lines)


def _numbers(directory: Path) -> list[int]:
    try:
        return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())
    except FileNotFoundError:
        return []


def _delete(directory: Path, number: int) -> None:
    (directory / str(number)).unlink(missing_ok=True)
    (directory / f".{number}.crc").unlink(missing_ok=True)
