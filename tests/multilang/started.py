"""The processes that a test of this directory has started: others may be of tests before it."""

from __future__ import annotations

import psutil

_others: set[psutil.Process] = set()


def begin() -> None:
    """Take the processes that are there for those of others."""
    _others.clear()
    _others.update(psutil.Process().children())


def started() -> list[psutil.Process]:
    """Return the processes that were started since, and have not been reaped."""
    return [process for process in psutil.Process().children() if process not in _others]
