"""Components that kill their process at chosen points of a batch.

TOPO_KILLS=100 kills a hundred times at each point instead of once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from topo import Tuple

KILLS = int(os.environ.get("TOPO_KILLS") or 1)
OF_SPOUTS = ("emitted", "pre_commit", "prepared", "committed", "published")
OF_BOLTS = ("executed", "pre_commit", "prepared", "committed", "published")


def killed(directories: Iterable[Path]) -> int:
    """Return how many were killed."""
    return sum("-" in path.name for each in directories for path in each.iterdir())


class Dying:
    """Kills its process at each of its points, so often, and not in the first batches."""

    points: tuple[str, ...] = ()
    deaths = Path()
    context: Any

    def dying_at(self, points: tuple[str, ...], directory: Path) -> Any:
        """Set the points, and the directory in which each death leaves a mark."""
        directory.mkdir(exist_ok=True)
        self.points, self.deaths = points, directory
        return self

    def die(self, point: str) -> None:
        if point not in self.points or self.context.batch_id < 3:
            return
        done = len(list(self.deaths.glob(f"{point}-*")))
        if done < KILLS:
            (self.deaths / f"{point}-{done}").touch()
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
