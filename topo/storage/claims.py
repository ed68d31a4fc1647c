"""The claims to a checkpoint in a directory: a file of each, which is made once.

The owner's record is written anew with every beat. A driver that stood still in the middle of one,
or of its end, lays its own record over that of the driver that has taken the checkpoint meanwhile.
The file of a claim cannot come back like that: whoever claims later removes it before it reads
anything, and nobody makes it again. A driver without its file owns nothing, whatever the record
says. It is looked at by opening it, which asks the server where the directory is on one.
"""

from __future__ import annotations

import os
from pathlib import Path

from topo.storage.checkpoints import CLAIM


class Claims:
    """The files of the claims in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def latest(self) -> int:
        """Return the highest generation that was claimed; 0 if there is none."""
        return max((generation for generation, _ in self._all()), default=0)

    def make(self, generation: int, claim: str) -> bool:
        """Make the file of a claim and remove those before it; False if a later one is there.

        Of two at the same time, the later one of them to look sees the other's.
        """
        handle = os.open(self._path(generation, claim), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.close(handle)
        others = [other for other in self._all() if other != (generation, claim)]
        for other in others:
            if other < (generation, claim):
                self.remove(*other)
        return all(other < (generation, claim) for other in others)

    def holds(self, generation: int, claim: str) -> bool:
        """Return True unless another driver has removed this claim."""
        try:
            os.close(os.open(self._path(generation, claim), os.O_RDONLY))
        except FileNotFoundError:
            return False
        return True

    def remove(self, generation: int, claim: str) -> None:
        self._path(generation, claim).unlink(missing_ok=True)

    def _path(self, generation: int, claim: str) -> Path:
        return self._directory / f"{CLAIM}{generation}.{claim}"

    def _all(self) -> list[tuple[int, str]]:
        names = [name for name in os.listdir(self._directory) if name.startswith(CLAIM)]
        parts = [name.removeprefix(CLAIM).partition(".") for name in names]
        return [(int(number), claim) for number, _, claim in parts if number.isdecimal()]
