"""What a check of `topo doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One finding; `fix` says what to do about it."""

    name: str
    status: str  # ok, warn, FAIL, skip
    detail: str
    fix: str = ""
