"""Components that kill their process at chosen points of a batch.

Without TOPO_KILLS each dies once at each of its points; with TOPO_KILLS=100 each dies 100 times,
dealt over its points (rounded up), and at each of them once in every other batch. Such a batch is
tried several times and then commits: so a run has a few failures in a row, whatever their number in
all, and data flows in the batches between.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.fault.spark_processes import wait_until
from topo import Tuple

KILLS = int(os.environ.get("TOPO_KILLS") or 1)
A_KILL_SECS = 30
"""How long a kill may take in a test's limit; on two busy cores one takes three to seven."""
OF_SPOUTS = ("emitted", "pre_commit", "prepared", "committed", "published")
OF_BOLTS = ("executed", "pre_commit", "prepared", "committed", "published")


def kills_at_each(points: tuple[str, ...], kills: int = KILLS) -> int:
    """Return how often a component dies at each of its points."""
    return -(-kills // len(points))


def killed(directories: Iterable[Path]) -> int:
    """Return how many were killed."""
    return len(_marks(directories))


def told(directories: Iterable[Path]) -> str:
    """Say how many were killed, and at which points."""
    lines = [f"{killed(directories := [*directories])} kills"]
    for each in directories:
        counts = Counter(mark.name.partition("-")[0] for mark in _marks([each]))
        lines.append(f"  {each.name}: {', '.join(f'{n} at {at}' for at, n in counts.items())}")
    return "\n".join(lines)


def await_kills(run: Any, directories: Iterable[Path], count: int) -> None:
    """Wait until so many were killed, or the run has ended; for each kill a test's patience."""
    directories = [*directories]
    while (before := killed(directories)) < count and not run.wait(0):
        wait_until(lambda before=before: killed(directories) > before or run.wait(0), "a kill")  # type: ignore[misc]


def _marks(directories: Iterable[Path]) -> list[Path]:
    return [path for each in directories for path in sorted(each.iterdir()) if "-" in path.name]


class Dying:
    """Kills its process at each of its points, so often, in odd batches but the first ones."""

    points: tuple[str, ...] = ()
    at_each = 0
    deaths = Path()
    context: Any

    def dying_at(self, points: tuple[str, ...], directory: Path, kills: int = KILLS) -> Any:
        """Set the points, the directory in which each death leaves a mark, and how many die."""
        directory.mkdir(exist_ok=True)
        self.points, self.deaths = points, directory
        self.at_each = kills_at_each(points, kills)
        return self

    def is_due(self, point: str) -> bool:
        """True if it is to die at this point."""
        batch = self.context.batch_id
        if point not in self.points or batch < 3 or batch % 2 == 0:
            return False
        is_first = not (self.deaths / f"{point}-{batch}").exists()
        return is_first and len([*self.deaths.glob(f"{point}-*")]) < self.at_each

    def die(self, point: str) -> None:
        if self.is_due(point):
            (self.deaths / f"{point}-{self.context.batch_id}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def pre_commit(self, batch_id: int) -> None:
        self.die("pre_commit")
        super().pre_commit(batch_id)  # type: ignore[misc]
        self.die("prepared")

    def committed(self, batch_id: int) -> None:
        self.die("committed")
        super().committed(batch_id)  # type: ignore[misc]
        self.die("published")


class DyingSpout(Dying):
    """The same of a spout; ends when the test says so."""

    def next_tuple(self) -> None:
        super().next_tuple()  # type: ignore[misc]
        self.die("emitted")

    def is_exhausted(self) -> bool:
        return (self.deaths / "stop").exists()


class DyingBolt(Dying):
    """The same of a bolt."""

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)  # type: ignore[misc]
        self.die("executed")
