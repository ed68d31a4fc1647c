"""What a task's rules have counted, by rule and key, and when they fired.

Counted events are appended to chunks and go as a whole: a chunk is dropped when the watermark says
that nothing in it counts any more, and with it the keys that had nothing since. A restart counts
the events of the chunks that are left again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from topo.conditions import raised_by
from topo.errors import RuleError, shown
from topo.rules.recent import Recent, RecentShape
from topo.rules.ruleset import CompiledRule
from topo.storage.chunks import SavedChunks
from topo.storage.saving import SavedMapping, column_with_one_nan, with_one_nan

_PARTS = 8
"""What is kept is let go in so many parts."""
_NO_PART = -1


class Slot(Recent):
    """What a rule has counted of one key, and when it has fired."""

    __slots__ = ("fired", "key", "part", "token")

    def __init__(self, token: str, key: Any, shape: RecentShape) -> None:
        super().__init__(shape)
        self.token = token
        """Which rule it is of."""
        self.key = key
        self.fired: int | None = None
        self.part = _NO_PART
        """The last part that it changed in; as long as there is none, nothing is kept of it."""


class KeyCounts:
    """The counts of one task."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tokens: dict[str, str] = {}  # by the rule's name
        self._rules: dict[str, CompiledRule] = {}  # by token
        self._span = 0
        self._slots: dict[str, dict[Any, Slot]] = {}  # by token and key
        self._fired: dict[tuple[str, Any], int] = {}
        self._touched: dict[tuple[str, Any], None] = {}
        self._fired_log = SavedMapping("fired", owner)
        self._log = SavedChunks("counted")
        self._fresh: list[tuple[str, Any, int, tuple[Any, ...]]] = []
        self._part = 0
        self._first: int | None = None  # the first time of this part
        self._last: dict[int, int] = {}  # the last time of each part
        self._changed_in: dict[int, set[Slot]] = {}  # those of each part
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, rules: Iterable[CompiledRule], tokens: Mapping[str, str]) -> None:
        """Count for these rules from now on; a rule whose token changed begins anew."""
        self._tokens = dict(tokens)
        self._rules = {tokens[rule.name]: rule for rule in rules if rule.needs_key_state}
        spans = (max(rule.within, rule.pause or 0) for rule in self._rules.values())
        self._span = max(spans, default=0)
        for token in self._slots.keys() - self._rules.keys():
            for slot in list(self._slots[token].values()):
                self._forget(slot)
            del self._slots[token]
        for token in self._rules:
            self._slots.setdefault(token, {})

    # -- counting -----------------------------------------------------------------------------

    def count_all(
        self,
        rule: CompiledRule,
        times: Sequence[int],
        keys: Sequence[Any],
        values: Sequence[tuple[Any, ...]] | None,
    ) -> list[tuple[int, list[Any]]]:
        """Count events in the order of their times; return the places of those that fire.

        With each place are the values of the rule's aggregates then. Values are None if the rule
        only counts. This is `add` and `may_fire` for many events at once: it is what a rule costs.
        """
        token, within = self._tokens[rule.name], rule.within
        keys = column_with_one_nan(keys)
        slots, part, holds = self._slots[token], self._part, rule.holds
        assert holds is not None, "the ruleset has looked"
        firing: list[tuple[int, list[Any]]] = []
        for place, (ts, key) in enumerate(zip(times, keys, strict=True)):
            try:
                slot = slots.get(key)
            except TypeError:
                raise self._no_key(key) from None
            if slot is None:
                slot = Slot(token, key, rule.shape)
            if slot.part != part:
                self._note(slot, ts)
            recent = slot.times
            if not recent or recent[0] <= ts - within:
                self._make_room(rule, slot, ts)
            if values is None:
                recent.append(ts)
            else:
                _add(rule, slot, ts, values[place])
            try:
                is_true = holds(slot)
            except Exception as error:
                _results(rule, slot, values[place] if values is not None else ())
                raise raised_by(rule.rule.having_condition, error, {}) from error
            if is_true:
                if self.may_fire(rule, slot, ts, holds=True):
                    counted = values[place] if values is not None else ()
                    firing.append((place, _results(rule, slot, counted)))
            elif slot.fired is not None:
                self.may_fire(rule, slot, ts, holds=False)
        self._fresh += zip(repeat(token), keys, times, values or repeat(()), strict=False)
        self._last[part] = max(self._last[part], times[-1])
        return firing

    def add(
        self, rule: CompiledRule, slot: Slot, ts: int, values: tuple[Any, ...]
    ) -> Sequence[Any]:
        """Count an event; return the values of the rule's aggregates."""
        self._make_room(rule, slot, ts)
        _add(rule, slot, ts, values)
        self._fresh.append((slot.token, slot.key, ts, values))
        self._note(slot, ts)
        return _results(rule, slot, values)

    def _make_room(self, rule: CompiledRule, slot: Slot, ts: int) -> None:
        """Forget what is too old when an event comes."""
        slot.forget_until(ts - rule.within)
        if not slot.times and rule.rearms and slot.fired is not None:
            self._set_fired(slot, None)  # of nothing, the condition was false

    def may_fire(self, rule: CompiledRule, slot: Slot, ts: int, *, holds: bool) -> bool:
        """Return True if a rule fires, given whether its condition holds."""
        if rule.pause is None and rule.fires_each:
            return holds
        last = slot.fired
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
        token = self._tokens[rule.name]
        key = with_one_nan(key)
        try:
            slot = self._slots[token].get(key)
        except TypeError:
            raise self._no_key(key) from None
        return Slot(token, key, rule.shape) if slot is None else slot

    def _no_key(self, key: Any) -> RuleError:
        return RuleError(
            f"{self._owner}: the key {shown(key)} is a {type(key).__name__}, which cannot be a key",
            hint="emit a str, a number or a tuple of them",
        )

    def _set_fired(self, slot: Slot, ts: int | None) -> None:
        name = slot.token, slot.key
        slot.fired = ts
        self._touched[name] = None
        if ts is None:
            self._fired.pop(name, None)
        else:
            self._fired[name] = ts

    # -- what goes ----------------------------------------------------------------------------

    def _note(self, slot: Slot, ts: int) -> None:
        """Note that a slot changed, in the part that is open."""
        if self._first is None:
            self._first = ts
        part = self._part
        if ts >= self._last.get(part, ts):
            self._last[part] = ts
        if slot.part == part:
            return
        if slot.part == _NO_PART:
            self._slots[slot.token][slot.key] = slot
            self._count += 1
        self._changed_in.setdefault(part, set()).add(slot)
        slot.part = part

    def expire(self, watermark: int) -> None:
        """Forget what cannot count any more, since no event before the watermark comes."""
        over = [part for part, last in self._last.items() if last + self._span <= watermark]
        for part in over:
            del self._last[part]
            self._log.drop(part)
            for slot in self._changed_in.pop(part, ()):
                if slot.part == part:
                    self._forget(slot)
            if part == self._part:
                self._begin_part()

    def _forget(self, slot: Slot) -> None:
        slot.part = _NO_PART
        del self._slots[slot.token][slot.key]
        self._count -= 1
        if slot.fired is not None:
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
                self._last[part] = max(ts, self._last.get(part, ts))
                if rule is None:
                    continue
                slot = self.slot(rule, key)
                slot.forget_until(ts - rule.within)
                slot.add(ts, values)
                self._note(slot, ts)
        self._begin_part()
        self._fired = self._fired_log.load(saved)
        for (token, key), ts in list(self._fired.items()):
            rule = self._rules.get(token)
            if rule is None:
                self._touched[token, key] = None
                del self._fired[token, key]
                continue
            slot = self.slot(rule, key)
            slot.fired = ts
            if slot.part == _NO_PART:
                self._note(slot, ts)

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


def _add(rule: CompiledRule, slot: Slot, ts: int, values: tuple[Any, ...]) -> None:
    """Count an event of a key; raise an error if its values cannot be counted."""
    try:
        slot.add(ts, values)
    except TypeError as error:
        raise _not_countable(rule, values, error) from error


def _results(rule: CompiledRule, slot: Slot, values: tuple[Any, ...]) -> list[Any]:
    """Return the values of a rule's aggregates; raise an error if they cannot be worked out.

    `values` are those that were counted last.
    """
    try:
        return slot.results()
    except TypeError as error:  # floats and decimals, for example
        raise _not_countable(rule, values, error) from error


def _not_countable(rule: CompiledRule, values: tuple[Any, ...], error: TypeError) -> RuleError:
    counted = dict(zip(rule.counted, values, strict=True))
    return RuleError(
        f"{rule.rule.what} cannot count {shown(counted, 200)}: {error}",
        hint="leave such events out in when=",
    )
