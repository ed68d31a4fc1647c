"""A source made of data that is there already: for tests, examples, first steps and backfills."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from topo.components import FieldNames, Spout
from topo.errors import ComponentError, shown
from topo.tuples import Fields

Items: TypeAlias = Iterable[Any] | Callable[[], Iterable[Any]]

VALUE = "value"
"""The field of items that have no fields."""
_MOST_OF_AN_ITERATOR = 1_000_000
_END = object()


class FromList(Spout):
    """A spout that emits the items of a list, each again until its tuple tree is processed.

    `items` is any iterable, or a function that returns one and is called where the spout runs; it
    must return the same items, in the same order, each time. Without `fields` an item is the value
    of the field "value". With them, a list or a tuple has the values of a tuple, a mapping has them
    by field, and anything else is the value of the only field.

    The message id is the position in the list, from 0. Of several tasks, task i emits the items
    i, i + k, i + 2k, ... After a restart, each task resumes at its position. An item that fails is
    emitted again, until `attempts` attempts have failed; None is without limit.
    """

    transient: Iterable[str] = ("items", "_rest")

    def __init__(
        self, items: Items, fields: FieldNames | None = None, *, attempts: int | None = None
    ) -> None:
        if attempts is not None and not (type(attempts) is int and attempts > 0):
            raise ComponentError(
                f"FromList: attempts={attempts!r}; it must be a whole number of 1 or more, or None"
            )
        self.fields = tuple(Fields(VALUE if fields is None else fields))
        self.outputs = self.fields
        self.is_bare = fields is None
        self.attempts = attempts
        self.items: Sequence[Any] | Callable[[], Iterable[Any]]
        self.items = items if callable(items) else _listed(items)
        self.position = -1
        """The position of this task's next item; below 0: the task has never run."""
        self.again: deque[int] = deque()
        """The positions of items that failed, and are to be emitted again."""
        self.failures: dict[int, int] = {}
        """How often an item has failed, by its position."""
        self.kept: dict[int, Any] = {}
        """Items of a function that are in flight, or failed, by their positions."""
        self.has_ended = False
        self._check()

    def _check(self) -> None:
        """Raise ComponentError for an item that does not fit the fields."""
        if self.is_bare or callable(self.items):
            return
        # The numbers of a range are alike, and may be very many.
        items = self.items[:1] if isinstance(self.items, range) else self.items
        for position, item in enumerate(items):
            self._values(item, position)

    # -- a task's life ------------------------------------------------------------------------

    def restored(self) -> None:
        context = self.context
        self._step = len(context.component_tasks(context.this_component_id))
        if self.position < 0:
            self.position = context.this_task_index
        if callable(self.items):
            self._rest = islice(_called(self.items), self.position, None, self._step)

    def next_tuple(self) -> None:
        if self.again:
            position = self.again.popleft()
            item = self.kept[position] if callable(self.items) else self.items[position]
        else:
            position = self.position
            item = self._item_at(position)
            if item is _END:
                self.has_ended = True
                return
            self.position += self._step
        self.send(item, position)

    def _item_at(self, position: int) -> Any:
        """Return the item at a position that has not been read yet, or _END."""
        if not callable(self.items):
            return self.items[position] if position < len(self.items) else _END
        item = next(self._rest, _END)
        if item is not _END:
            self.kept[position] = item
        return item

    def send(self, item: Any, position: int) -> None:
        """Emit an item."""
        self.emit(self._values(item, position), msg_id=position)

    def ack(self, msg_id: Any) -> None:
        self._forget(msg_id)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        failures = self.failures.get(msg_id, 0) + 1
        if failures == self.attempts:
            self._forget(msg_id)
        else:
            self.again.append(msg_id)
            if self.attempts is not None:
                self.failures[msg_id] = failures

    def _forget(self, position: int) -> None:
        self.kept.pop(position, None)
        self.failures.pop(position, None)

    def is_exhausted(self) -> bool:
        return self.has_ended and not self.again

    # -- items --------------------------------------------------------------------------------

    def _values(self, item: Any, position: int) -> list[Any]:
        """Return the values of an item; raise ComponentError if they are not those of a tuple."""
        if self.is_bare:
            return [item]
        if isinstance(item, Mapping):
            if item.keys() != set(self.fields):
                raise self._misfit(item, position, f"has the keys {', '.join(map(repr, item))}")
            return [item[field] for field in self.fields]
        values = list(item) if isinstance(item, list | tuple) else [item]
        if len(values) != len(self.fields):
            plural = "" if len(values) == 1 else "s"
            raise self._misfit(item, position, f"has {len(values)} value{plural}")
        return values

    def _misfit(self, item: Any, position: int, what: str) -> ComponentError:
        return ComponentError(
            f"FromList: item {position}, {shown(item)}, {what}; the fields are "
            f"{', '.join(map(repr, self.fields))}",
            hint="a list or tuple has a value for each field; without fields, any item is a value",
        )


def _listed(items: Any) -> Sequence[Any]:
    """Return the items as a sequence that does not change; raise ComponentError."""
    if isinstance(items, range):
        return items
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise ComponentError(
            f"FromList takes a list, another iterable, or a function; got {shown(items)}",
            hint="write FromList([item]) for one item",
        )
    if not isinstance(items, Iterator):
        return tuple(items)
    listed = tuple(islice(items, _MOST_OF_AN_ITERATOR + 1))
    if len(listed) > _MOST_OF_AN_ITERATOR:
        raise ComponentError(
            f"FromList: {shown(items)} has more than {_MOST_OF_AN_ITERATOR:,} items",
            hint="give a function that returns it, which is called where the spout runs",
        )
    return listed


def _called(function: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    returned = function()
    if not isinstance(returned, Iterable):
        raise ComponentError(
            f"FromList: {shown(function)} must return an iterable; it returned {shown(returned)}"
        )
    return iter(returned)
