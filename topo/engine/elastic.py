"""State that is saved apart from its run: what a launch says of it, and who saves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from topo.engine.base import Conf, Engine, Launch, engine_named


@dataclass(frozen=True)
class StatefulLaunch(Launch):
    """A launch that says what becomes of state that was saved before."""

    begin: Conf = field(default_factory=dict)
    """The savepoint that it begins with: {"from": DIR, "rename": {OLD: NEW}, "drop": [...]}."""
    fate: str = ""
    """Of the state that is there: "refuse", "resume" or "fresh"; "" where that is known already."""


class Saver(Engine, Protocol):
    """An engine whose checkpoints can be saved, and begin with what was saved."""

    def save(self, place: str, directory: Path, name: str) -> dict[str, Any]: ...  # nobody runs it
    def differences(self, launch: StatefulLaunch) -> list[str]: ...  # from what it begins with


def saver() -> Saver:
    """Return the engine whose checkpoints they are."""
    return cast(Saver, engine_named("spark"))
