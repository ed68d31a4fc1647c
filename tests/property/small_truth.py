"""The oracle of a small world: messages and their unfinished tuples, without any XOR."""

from __future__ import annotations

from dataclasses import dataclass, field

TIMEOUT = 10.0


class Violation(AssertionError):
    """The acker was wrong, forgot, or stood in the way without a cause."""


@dataclass(eq=False)
class Flying:
    """A tuple on its way, or held: its id per root, and what has been anchored to it."""

    serial: int
    slot: int
    ids: dict[int, int] = field(default_factory=dict)
    anchored: int = 0


@dataclass
class SpoutState:
    sequence: int = 0
    pending: dict[int, int] = field(default_factory=dict)  # root -> incarnation
    cursor: tuple[int, int] = (0, 0)


@dataclass
class SlotState:
    """The saved state of one slot of one level."""

    spouts: dict[int, SpoutState] = field(default_factory=dict)
    held: list[Flying] = field(default_factory=list)


@dataclass
class Effects:
    """The effects of one execution, which count if its batch commits."""

    emitted: list[tuple[int, list[Flying]]] = field(default_factory=list)
    children: list[Flying] = field(default_factory=list)
    acked: list[Flying] = field(default_factory=list)
    failed: list[Flying] = field(default_factory=list)
    heard: list[tuple[int, str | None]] = field(default_factory=list)


@dataclass
class Truth:
    """Committed messages: which of their tuples are unfinished, and what their spout has heard."""

    unfinished: dict[int, set[int]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    emitted_at: dict[int, float] = field(default_factory=dict)
    heard: dict[int, str | None] = field(default_factory=dict)

    def learn(self, effects: Effects, now: float) -> None:
        for root, reason in effects.heard:
            self._hear(root, reason, now)
        for root, tuples in effects.emitted:
            self.unfinished[root] = {flying.serial for flying in tuples}
            self.emitted_at[root] = now
        for child in effects.children:
            for root in child.ids:
                self.unfinished[root].add(child.serial)
        for flying in effects.failed:
            self.failed.update(flying.ids)
        for flying in effects.acked:
            for root in flying.ids:
                self.unfinished[root].discard(flying.serial)

    def _hear(self, root: int, reason: str | None, now: float) -> None:
        if root in self.heard:
            raise Violation(f"{root:x} is heard of a second time")
        self.heard[root] = reason
        if reason is None and (self.unfinished[root] or root in self.failed):
            raise Violation(f"{root:x} is acked, with {len(self.unfinished[root])} unfinished")
        if reason == "bad" and root not in self.failed:
            raise Violation(f"{root:x} failed, and nobody failed it")
        if reason and reason.startswith("timeout") and now < self.emitted_at[root] + TIMEOUT:
            raise Violation(f"{root:x} timed out too early")
