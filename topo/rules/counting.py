"""What a task's rules have counted, by rule and key, and when they fired.

Counted events are appended to chunks and go as a whole: a chunk is dropped when the watermark says
that nothing in it counts any more, and with it the keys that had nothing since. A restart counts
the events of the chunks that are left again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from topo.errors import RuleError, shown
from topo.rules.recent import Recent
from topo.rules.ruleset import CompiledRule
from topo.storage.chunks import SavedChunks
from topo.storage.saving import SavedMapping, with_one_nan

_PARTS = 8
"""What is kept is let go in so many parts."""
Slot: TypeAlias = tuple[str, Any]
"""A rule, by its token, and a key."""


class KeyCounts:
    """The counts of one task."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tokens: dict[str, str] = {}  # by the rule's name
        self._rules: dict[str, CompiledRule] = {}  # by token
        self._span = 0
        self._recent: dict[Slot, Recent] = {}
        self._fired: dict[Slot, int] = {}
        self._touched: dict[Slot, None] = {}
        self._fired_log = SavedMapping("fired", owner)
        self._log = SavedChunks("counted")
        self._fresh: list[tuple[str, Any, int, tuple[Any, ...]]] = []
        self._part = 0
        self._first: int | None = None  # the first time of this part
        self._last: dict[int, int] = {}  # the last time of each part
        self._slots: dict[int, set[Slot]] = {}  # those of each part
        self._part_of: dict[Slot, int] = {}  # the last one

    def __len__(self) -> int:
        return len(self._recent)

    def begin(self, rules: Iterable[CompiledRule], tokens: Mapping[str, str]) -> None:
        """Count for these rules from now on; a rule whose token changed begins anew."""
        self._tokens = dict(tokens)
        self._rules = {tokens[rule.name]: rule for rule in rules if rule.needs_key_state}
        spans = (max(rule.within, rule.pause or 0) for rule in self._rules.values())
        self._span = max(spans, default=0)
        for slot in [slot for slot in self._part_of if slot[0] not in self._rules]:
            self._forget(slot)

    # -- counting -----------------------------------------------------------------------------

    def add(
        self, rule: CompiledRule, slot: Slot, ts: int, values: tuple[Any, ...]
    ) -> Sequence[Any]:
        """Count an event; return the values of the rule's aggregates."""
        recent = self._recent.get(slot)
        if recent is None:
            recent = self._recent[slot] = _recent_of(rule)
        if recent.count(ts, values) and rule.rearms and slot in self._fired:
            self._set_fired(slot, None)  # of nothing, the condition was false
        self._fresh.append((*slot, ts, values))
        if self._part_of.get(slot) != self._part:
            self._note(slot, ts)
        elif ts > self._last[self._part]:
            self._last[self._part] = ts
        return recent.results()

    def may_fire(self, rule: CompiledRule, slot: Slot, ts: int, *, holds: bool) -> bool:
        """Return True if a rule fires, given whether its condition holds."""
        if rule.pause is None and rule.fires_each:
            return holds
        last = self._fired.get(slot)
        if not holds:
            if last is not None and rule.pause is None:
                self._set_fired(slot, None)
            return False
        if last is not None and (rule.pause is None or ts - last < rule.pause):
            return False
        self._set_fired(slot, ts)
        self._note(slot, ts)
        return True

    def slot(self, rule: CompiledRule, key: Any) -> Slot:
        """Return where a rule counts the events of a key; raise an error if it can be none."""
        slot = self._tokens[rule.name], key
        try:
            if slot in self._part_of:
                return slot
        except TypeError:
            raise RuleError(
                f"{self._owner}: the key {shown(key)} is a {type(key).__name__}, which cannot be a "
                "key",
                hint="emit a str, a number or a tuple of them",
            ) from None
        return self._tokens[rule.name], with_one_nan(key)

    def _set_fired(self, slot: Slot, ts: int | None) -> None:
        self._touched[slot] = None
        if ts is None:
            del self._fired[slot]
        else:
            self._fired[slot] = ts

    # -- what goes ----------------------------------------------------------------------------

    def _note(self, slot: Slot, ts: int) -> None:
        """Note that a slot changed, in the part that is open."""
        if self._first is None:
            self._first = ts
        self._last[self._part] = max(ts, self._last.get(self._part, ts))
        self._slots.setdefault(self._part, set()).add(slot)
        self._part_of[slot] = self._part

    def expire(self, watermark: int) -> None:
        """Forget what cannot count any more, since no event before the watermark comes."""
        over = [part for part, last in self._last.items() if last + self._span <= watermark]
        for part in over:
            del self._last[part]
            self._log.drop(part)
            for slot in self._slots.pop(part, ()):
                if self._part_of.get(slot) == part:
                    self._forget(slot)
            if part == self._part:
                self._begin_part()

    def _forget(self, slot: Slot) -> None:
        del self._part_of[slot]
        self._recent.pop(slot, None)
        if slot in self._fired:
            self._set_fired(slot, None)

    def _begin_part(self) -> None:
        self._part += 1
        self._first = None

    # -- state --------------------------------------------------------------------------------

    def load(self, saved: Mapping[str, bytes]) -> None:
        """Count again what counts still; the rules have begun."""
        for part, chunks in self._log.load(saved).items():
            self._begin_part()
            self._part = part
            for token, key, ts, values in (event for chunk in chunks for event in chunk):
                rule = self._rules.get(token)
                slot = token, with_one_nan(key)
                self._last[part] = max(ts, self._last.get(part, ts))
                if rule is None:
                    continue
                recent = self._recent.get(slot)
                if recent is None:
                    recent = self._recent[slot] = _recent_of(rule)
                recent.count(ts, values)
                self._note(slot, ts)
        self._begin_part()
        self._fired = self._fired_log.load(saved)
        for slot in [slot for slot in self._fired if slot not in self._part_of]:
            if slot[0] in self._rules:
                self._note(slot, self._fired[slot])
            else:
                self._set_fired(slot, None)

    def save(self, changes: Any) -> None:
        fresh, self._fresh = self._fresh, []
        if fresh and self._part in self._last:
            self._log.add(self._part, fresh, changes)
        touched, self._touched = self._touched, {}
        self._fired_log.save(self._fired, touched, changes)
        self._log.save(changes)
        last = self._last.get(self._part)
        if self._first is None or last is None:
            return
        if last - self._first >= max(1, self._span // _PARTS):
            self._begin_part()


def _recent_of(rule: CompiledRule) -> Recent:
    return Recent(rule.aggregates, rule.counted, rule.within)
