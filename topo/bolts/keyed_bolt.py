"""`KeyedBolt`: a component with one instance for each key, as users write it.

The key is what the input is grouped by, and nothing else: so all tuples of a key come to one task,
and the state of a key can be dealt over another number of tasks by the key alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from topo.errors import ComponentError, Problem, TopoError, shown
from topo.event_time import Duration, EventTime
from topo.keyed.operator import RECORDS, KeyedOperator, KeyRules, ttl_of
from topo.timed import InputFields, Operator, OperatorTask, TimedBolt
from topo.tuples import Fields, Tuple

_BY_KEY = "fields"


class KeyedBolt(TimedBolt):
    """A bolt with one instance for each key of its input, each with its own attributes and timers.

    The key is made of the fields that the inputs are grouped by; where all tuples come to one task
    anyway, `key` names them. What `__init__` and `prepare` set is shared by all keys and must not
    change. What `created`, `execute` and `on_timer` set belongs to the key: it is saved with each
    batch that touches the key, unless `transient` names it.

    Emits of `execute` and `created` are anchored to the input, which is acked when `execute`
    returns; `FailTuple` fails it. Emits of timers and of `removed` belong to no tuple tree.
    """

    acks = "expiry"

    key: Any = None
    """On the class: the fields of the key, if inputs are not grouped by them. On an instance: its
    key, the value or the tuple of values of these fields."""

    ttl: Duration | None = None
    """Remove a key that has had no tuple for so long."""

    time: EventTime | None = None
    """Where the tuples' time is, if timers and `ttl` are in event time and not by the clock."""

    max_keys: int | None = None
    """How many keys a task keeps; the longest silent one is removed for a new one."""

    _key_fields: ClassVar[Mapping[tuple[str, str], Sequence[str]]] = {}

    def created(self) -> None:
        """Set up the instance of a new key; once in a key's life, before its first tuple."""

    def execute(self, tup: Tuple) -> None:
        """Process one tuple of this key."""
        raise NotImplementedError

    def on_timer(self, name: str, at: Any) -> None:
        """Act on a timer of this key that is due.

        `at` is when it was: in seconds of the clock, or in the unit of the time field.
        """

    def removed(self, why: str) -> None:
        """Act on the end of this key: "ttl", "evicted" or "forgotten"; not at the end of a run."""

    def emit(  # type: ignore[override]
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = "default",
        task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple, in `execute` and `created` anchored to the input."""
        return self.collector.emit(values, stream=stream, anchors=[], task_ids=task_ids)

    def emit_direct(  # type: ignore[override]
        self, task: int, values: list[Any] | tuple[Any, ...], *, stream: str = "default"
    ) -> None:
        """Emit to one task, on a direct stream."""
        self.collector.emit_direct(task, values, stream=stream, anchors=[])

    def set_timer(
        self, name: str, at: Any = None, *, after: timedelta | float | None = None
    ) -> None:
        """Call `on_timer` for this key at a time, or after one; by that name there is one timer.

        By the clock both are in seconds, `after` may be a timedelta and counts from the batch's
        clock. In event time `at` is in the unit of the field, and `after` counts from the tuple's
        time.
        """
        raise self._no_key("set_timer")

    def delete_timer(self, name: str) -> None:
        """Delete a timer of this key; without one nothing happens."""
        raise self._no_key("delete_timer")

    def forget(self) -> None:
        """Remove this key when the call at hand returns; its next tuple creates it anew."""
        raise self._no_key("forget")

    def _no_key(self, call: str) -> ComponentError:
        return ComponentError(
            f"{type(self).__name__}: {call} in a hook of the task, where there is no key",
            hint="call it in created, execute or on_timer",
        )

    # -- what the engine asks -----------------------------------------------------------------

    def timing(self) -> EventTime | None:
        return self.time

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        own = None if self.key is None else tuple(Fields(self.key))
        fields = {
            (read.component, read.stream): read.grouping_fields
            if read.grouping == _BY_KEY
            else own or ()
            for read in inputs
        }
        object.__setattr__(self, "_key_fields", fields)  # it may be a frozen dataclass

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        yield from self._rule_problems(where)
        by_key = [read for read in inputs if read.grouping == _BY_KEY]
        for read in inputs:
            yield from self._input_problems(where, read, tasks)
        counts = {len(read.grouping_fields): read for read in by_key}
        if self.key is not None:
            counts.setdefault(len(Fields(self.key)), by_key[0] if by_key else inputs[0])
        if len(counts) > 1:
            text = f"{where} has a key of {' and of '.join(map(str, sorted(counts)))} fields"
            hint = "group all inputs by equally many fields: together they are the key"
            yield Problem("keyed-input", where, text, hint)

    def _input_problems(self, where: str, read: InputFields, tasks: int) -> Iterable[Problem]:
        if read.grouping == _BY_KEY:
            return
        names = list(Fields(self.key)) if self.key is not None else list(read.fields[:1])
        line = f"fields_grouping({read.component!r}, {', '.join(map(repr, names))})"
        is_whole = tasks == 1 or read.grouping == "global"
        if not is_whole:
            text = f"{where} has an instance for each key, and reads {read.component!r} by "
            text += f"{read.grouping}, which sends a key to several tasks"
            yield Problem("keyed-input", where, text, f"write .{line}")
        elif self.key is None:
            text = f"{where} has an instance for each key, and nothing says what the key of "
            text += f"{read.component!r} is"
            yield Problem(
                "keyed-input", where, text, f"write .{line}, or key = {names[0]!r} in the class"
                if names else "give it a field",
            )  # fmt: skip
        else:
            for name in names:
                if name not in read.fields:
                    text = f"{where} has the key {name!r}, which {read.component!r} does not emit"
                    hint = f"it emits {', '.join(map(repr, read.fields)) or 'nothing'}"
                    yield Problem("keyed-input", where, text, hint)

    def _rule_problems(self, where: str) -> Iterable[Problem]:
        if type(self).execute is KeyedBolt.execute:
            text = f"{where} does not override 'execute'"
            yield Problem("missing-hook", where, text, "write def execute(self, tup)")
        most = self.max_keys
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            text = f"{where}: max_keys is {shown(most)}; it is the number of keys a task keeps"
            yield Problem("keyed-rule", where, text, "write a number above zero, or None")
        if self.time is not None and not isinstance(self.time, EventTime):
            text = f"{where}: time is {shown(self.time)}; it takes an EventTime or None"
            yield Problem("keyed-rule", where, text, 'write time = EventTime("ts")')
            return
        try:
            if self.ttl is not None:
                ttl_of(self.ttl, self.time)
        except TopoError as error:
            yield Problem("keyed-rule", where, f"{where}: {error.message}", error.hint)

    def records_by_key(self, inputs: Sequence[InputFields]) -> Sequence[str]:
        return (RECORDS,)

    def describe_time(self) -> str:
        parts = [f"an instance for each key, {super().describe_time()}"]
        if self.ttl is not None:
            parts.append(f"silent for at most {self.ttl}")
        if self.max_keys is not None:
            parts.append(f"at most {self.max_keys:,} keys a task")
        return ", ".join(parts)

    def operator(self, task: OperatorTask) -> Operator:
        ttl = None if self.ttl is None else ttl_of(self.ttl, self.time)
        return KeyedOperator(self, KeyRules(self._key_fields, self.time, ttl, self.max_keys), task)
