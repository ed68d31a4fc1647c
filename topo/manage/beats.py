"""The hosts that keep the runs of one registry, and which of them have fallen silent.

Over a registry on storage that several hosts share, the keeper of each writes a beat to a file of
its own; whoever has not seen another's change for GONE_SECS counts that host as gone: it has no
power, no network or no storage. No clock of another host is asked for that, and no lock: a file
system's server may keep the locks of a silent host for minutes.

While the shared storage is away nobody sees anybody's beat, which is nobody's silence: only time
counts in which this process looked, again and again, and saw something.

A keeper that was stopped in order says so, and nobody takes over what it has: it comes back. One
that was killed leaves drivers that live: each of them writes its figures every few seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from topo.manage.files import read_json, write_json_if_possible
from topo.manage.records import DAMAGED
from topo.tracking.clock import monotonic

BEAT_SECS = 5.0
GONE_SECS = 20.0
"""How long a host without a new beat counts as a living one."""
LOOK_SECS = 2.0
UNSEEN_SECS = 3 * LOOK_SECS
"""The longest pause between two looks that counts as watched."""


class Stillness:
    """The durations for which things were seen not to change, by looks all along."""

    def __init__(self, monotonic: Callable[[], float] = monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[object, float, float]] = {}
        """What it was, since when, and when it was last looked at."""

    def secs(self, name: str, state: object) -> float:
        """Return for how long this has had this state; 0 if new, or after a time unseen."""
        now = self._monotonic()
        before, since, looked_at = self._seen.get(name, (None, now, now))
        if before != state or now - looked_at > UNSEEN_SECS:
            since = now
        self._seen[name] = state, since, now
        return now - since


class Beats:
    """The beats of the hosts of a registry, as one of them writes its own and sees the others'."""

    def __init__(self, home: Path, host: str, monotonic: Callable[[], float] = monotonic) -> None:
        self._directory = home / "hosts"
        self._host = host
        self._monotonic = monotonic
        self._due = 0.0
        self._stillness = Stillness(monotonic)

    def beat(self) -> None:
        """Say that this host lives, unless it has been said a moment ago."""
        now = self._monotonic()
        if now >= self._due:
            self._due = now + BEAT_SECS
            self._write(stopped=False)

    def stop(self) -> None:
        """Say that this host's keeper was stopped in order."""
        self._write(stopped=True)

    def silent(self) -> set[str]:
        """Return the hosts that have not beaten for too long."""
        silent = set()
        for path in self._directory.glob("*.json"):
            document = None
            with suppress(OSError, *DAMAGED):  # it is being written, or damaged: no beat
                document = read_json(path)
            host = document.get("host") if isinstance(document, dict) else None
            if document is None or not isinstance(host, str) or host == self._host:
                continue
            still = self._stillness.secs(host, document.get("beat")) >= GONE_SECS
            if still and not document.get("stopped"):
                silent.add(host)
        return silent

    def _write(self, *, stopped: bool) -> None:
        document = {"host": self._host, "beat": uuid.uuid4().hex, "stopped": stopped}
        with suppress(OSError):
            self._directory.mkdir(mode=0o700, exist_ok=True)
        write_json_if_possible(self._directory / f"{quote(self._host, safe='')}.json", document)
