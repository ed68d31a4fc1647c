"""An index of many conditions: which of them a message may fulfil.

A condition holds if one of its terms does (`topo.conditions.terms`), and a term only if all of its
comparisons do. So each term is filed under one or two of them: an equality, of those the one whose
place has the fewest terms, and below it a bound of another field in a sorted list. A message looks
under the values of its fields, and finds by bisection the bounds that it keeps. What is filed under
all that its term says is fulfilled; of the others the whole condition is asked. A condition with
terms that say nothing of the kind, or with too many of them, is always asked.

Counting how many of its parts a condition has fulfilled, as the classic algorithm does, was not
taken: it touches every condition that a common part is fulfilled of.

A value is compared with constants of its own kind (numbers, text). A value that may be compared
with others, by methods of its class, has all of a list asked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import ge, gt, le, lt, or_
from typing import Any, TypeAlias

from topo.conditions import Comparison, Rest
from topo.conditions.terms import Term

_BOUNDS = ("<", "<=", ">", ">=")
_NUMBERS = (bool, int, float)
_PLAIN_NUMBERS = {*_NUMBERS, type(None)}
_TEXTS = {str, type(None)}
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}

Place: TypeAlias = "tuple[_Shelf, tuple[str, str, bool] | None, Any]"
"""Where a term is filed: shelf, list of bounds, bound."""


class _Bounds:
    """Terms by a bound of one field, in order: those that a value keeps are one stretch."""

    __slots__ = ("entries", "operator", "values")

    def __init__(self, operator: str) -> None:
        self.operator = operator
        self.values: list[Any] = []
        self.entries: list[tuple[Any, bool]] = []  # id, and whether the term says nothing else

    def add(self, value: Any, entry: tuple[Any, bool]) -> None:
        at = bisect_right(self.values, value)
        self.values.insert(at, value)
        self.entries.insert(at, entry)

    def remove(self, value: Any, number: Any) -> None:
        at = bisect_left(self.values, value)
        while self.entries[at][0] != number:
            at += 1
        del self.values[at], self.entries[at]

    def kept_by(self, value: Any) -> list[tuple[Any, bool]]:
        """Return the entries whose bound a value keeps."""
        if value != value:  # a NaN keeps none
            return []
        if self.operator == "<":
            return self.entries[bisect_right(self.values, value) :]
        if self.operator == "<=":
            return self.entries[bisect_left(self.values, value) :]
        if self.operator == ">":
            return self.entries[: bisect_left(self.values, value)]
        return self.entries[: bisect_right(self.values, value)]

    def may_keep(self, values: Sequence[Any], *, is_text: bool) -> list[bool] | None:
        """Return which values keep at least one of the bounds; None if their kinds do not tell."""
        if not set(map(type, values)) <= (_TEXTS if is_text else _PLAIN_NUMBERS):
            return None
        weakest = self.values[0 if self.operator in (">", ">=") else -1]
        keeps = _COMPARED[self.operator]
        return [value is not None and keeps(value, weakest) for value in values]


class _Shelf:
    """The terms under one equality, or under none."""

    __slots__ = ("bounds", "equality", "plain")

    def __init__(self, equality: tuple[str, Hashable] | None) -> None:
        self.equality = equality
        """Field and value."""
        self.plain: dict[Any, bool] = {}
        """The ids of terms without a bound, each with whether its term says nothing else."""
        self.bounds: dict[tuple[str, str, bool], _Bounds] = {}
        """The others, by field, operator and whether the bound is a text."""

    def __len__(self) -> int:
        return len(self.plain) + sum(len(bounds.values) for bounds in self.bounds.values())

    def find(
        self, event: Mapping[str, Any], sure: dict[Any, None], open_ones: dict[Any, None]
    ) -> None:
        """Add the ids of the terms that an event fulfils, and of those that it may fulfil."""
        for number, is_sure in self.plain.items():
            (sure if is_sure else open_ones)[number] = None
        for (field, _, is_text), bounds in self.bounds.items():
            value = event[field]
            if value is None:
                continue
            kind = type(value)
            if kind in _NUMBERS or kind is str:
                fits = is_text == (kind is str)
                entries = bounds.kept_by(value) if fits else bounds.entries
            else:
                fits, entries = False, bounds.entries
            for number, is_sure in entries:
                (sure if is_sure and fits else open_ones)[number] = None


class ConditionIndex:
    """Conditions by id, in the order in which they were added; ids rise."""

    def __init__(self, unindexed: Iterable[str] = ()) -> None:
        self._unindexed = frozenset(unindexed)
        """Fields whose values change while a message is asked."""
        self._by_value: dict[str, dict[Hashable, _Shelf]] = {}
        self._others = _Shelf(None)
        self._places: dict[Any, list[Place]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, number: Any, terms: Sequence[Term] | None) -> None:
        """File a condition; `terms` are its terms, None if there are too many."""
        # One that has several terms may raise in the first where another one holds.
        is_whole = terms is not None and (
            len(terms) == 1 or all(_values_of(part) for term in terms for part in term)
        )
        self._places[number] = [
            place
            for term in ([()] if terms is None else terms)
            for place in self._file(number, term, is_whole)
        ]

    def _file(self, number: Any, term: Term, is_whole: bool) -> Iterator[Place]:
        comparisons = [
            part
            for part in term
            if isinstance(part, Comparison) and part.field not in self._unindexed
        ]
        equalities = [part for part in comparisons if _values_of(part) is not None]
        least = min(equalities, key=self._size_under, default=None)
        shelves = [self._others]
        if least is not None:
            by_value = self._by_value.setdefault(least.field, {})
            values = dict.fromkeys(_values_of(least) or ())
            shelves = [by_value.setdefault(v, _Shelf((least.field, v))) for v in values]
        bound = next((p for p in comparisons if p is not least and _is_bound(p)), None)
        used = sum(part is not None for part in (least, bound))
        is_sure = is_whole and used == len(term)
        for shelf in shelves:
            if bound is None:
                shelf.plain[number] = shelf.plain.get(number, False) or is_sure
                yield shelf, None, None
                continue
            key = (bound.field, bound.operator, isinstance(bound.value, str))
            bounds = shelf.bounds.get(key)
            if bounds is None:
                bounds = shelf.bounds[key] = _Bounds(bound.operator)
            bounds.add(bound.value, (number, is_sure))
            yield shelf, key, bound.value

    def _size_under(self, part: Comparison) -> int:
        by_value = self._by_value.get(part.field, {})
        shelves = (by_value.get(value) for value in _values_of(part) or ())
        return sum(len(shelf) for shelf in shelves if shelf is not None)

    def remove(self, number: Any) -> None:
        """Take a condition out."""
        for shelf, key, value in self._places.pop(number):
            if key is None:
                shelf.plain.pop(number, None)
            else:
                shelf.bounds[key].remove(value, number)
                if not shelf.bounds[key].values:
                    del shelf.bounds[key]
            if shelf.equality is not None and not shelf:
                field, constant = shelf.equality
                self._by_value[field].pop(constant, None)

    def find(self, event: Mapping[str, Any]) -> tuple[dict[Any, None], dict[Any, None]]:
        """Return the ids of conditions that an event fulfils, and of those to be asked."""
        sure: dict[Any, None] = {}
        open_ones: dict[Any, None] = {}
        self._others.find(event, sure, open_ones)
        for field, by_value in self._by_value.items():
            try:
                shelf = by_value.get(event[field])
            except TypeError:  # not hashable, so equal to no constant
                continue
            if shelf is not None:
                shelf.find(event, sure, open_ones)
        for number in sure.keys() & open_ones.keys():
            del open_ones[number]
        return sure, open_ones

    def may_hold(self, columns: Mapping[str, Sequence[Any]]) -> Sequence[bool] | None:
        """Return for each of many events whether `find` finds anything; None if it has to be asked.

        A pass over a column answers this for all events: most of them are nothing to any condition.
        """
        others = self._others
        fields = [*self._by_value, *(field for field, _, _ in others.bounds)]
        if others.plain or not fields or not columns.keys() >= set(fields):
            return None
        passes: list[Iterable[bool]] = [
            map(by_value.__contains__, columns[field]) for field, by_value in self._by_value.items()
        ]
        for (field, _, is_text), bounds in others.bounds.items():
            in_bounds = bounds.may_keep(columns[field], is_text=is_text)
            if in_bounds is None:
                return None
            passes.append(in_bounds)
        try:
            return list(reduce(partial(map, or_), passes))
        except TypeError:  # a value is not hashable
            return None

    def words(self) -> str:
        """Return how the conditions are found, for `topo explain`."""
        by_field = {
            field: sum(map(len, by_value.values())) for field, by_value in self._by_value.items()
        }
        parts = [f"{count} by {field}" for field, count in sorted(by_field.items()) if count]
        bounds: dict[str, int] = {}
        for (field, operator, _), entries in self._others.bounds.items():
            name = f"{field} {operator} ..."
            bounds[name] = bounds.get(name, 0) + len(entries.values)
        parts += [f"{count} by {name}" for name, count in sorted(bounds.items())]
        always = len(self._others.plain)
        return ", ".join(parts + ([f"{always} always asked"] if always else [])) or "none"


def _values_of(part: Comparison | Rest) -> tuple[Any, ...] | None:
    """Return the constants of which a comparison wants one; None if it is no such one."""
    if not isinstance(part, Comparison):
        return None
    values = part.value if part.operator == "in" else (part.value,)
    if part.operator not in ("==", "in") or any(isinstance(value, tuple) for value in values):
        return None
    return tuple(values)


def _is_bound(part: Comparison) -> bool:
    return part.operator in _BOUNDS and isinstance(part.value, (*_NUMBERS, str))
