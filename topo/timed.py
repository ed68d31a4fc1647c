"""The contract of operators that work in event time: windows, joins, processes with timers.

A `TimedBolt` is only the declaration: where the time is (`event_time`), and how to make the
operator that does the work in a task. The runtime gives the operator columns of tuples, not one
tuple at a time, and calls it in every batch, also when no tuple came:

    open       `load(saved, watermark)`: the state of the last commit
    a batch    `rows(rows)` for each run of tuples of one stream, with their times;
               `clock.watermark_before` is the watermark for what is late
               `advance(clock)` once, when all tuples of the batch are in: the new watermark,
               the batch's clock, `ended` in the last batch of a finite input (then the
               watermark is AFTER_ALL)
               `save(changes)`: what changed

What an operator needs for its own part:

- Keyed state: `topo.storage.namespaces.SavedNamespaces`, one per kind of state. A namespace is
  whatever ends as a whole (a window, a table's version); keys that changed are touched.
- Timers in event time: a heap of (time, key), rebuilt in `load` from the state; in `advance`, pop
  what is not after `clock.watermark`. Timers by the clock: the same with `clock.now`, and
  `wakes_at` returns the earliest, so that a batch comes by then.
- Results: `task.emit(rows, stream)`. They belong to no tuple tree: what is in committed state is
  acked, and what is emitted is worked on and committed in the same batch. What follows from one
  tuple alone, within `rows`, is anchored to it: `task.emit_anchored(rows, places, values, stream)`.
- Late tuples: `task.set_aside(rows, places)` counts them and emits them on the late stream.
- Time of results downstream: `result_time(stream)` names a field of the output, and what to add to
  it. The component's watermark travels with the batch: a bolt that reads it in event time has it
  in the same batch. If results may be older than the watermark, `result_delay` holds it back.

Inputs are acked when `rows` has returned, since the operator's state is committed with the batch;
with `acks = "expiry"` the operator gets tuples (`rows.tuples()`) and acks them by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from topo.components import Bolt
from topo.event_time import EventTime
from topo.tuples import Source, Tuple

if TYPE_CHECKING:
    from topo.errors import Problem


@dataclass(frozen=True)
class Clock:
    """The time at the end of a batch's tuples."""

    watermark_before: int
    watermark: int
    now: float
    """The batch's clock, in seconds."""
    ended: bool = False


@dataclass(frozen=True)
class InputFields:
    """One input of a timed bolt: for checks when the topology is built."""

    component: str
    stream: str
    fields: tuple[str, ...]
    grouping: str
    grouping_fields: tuple[str, ...]
    classes: tuple[str, ...] = ()
    """The names of the component's class and its bases: "topo.bolts.learn_bolt.LearnBolt"."""


class Rows:
    """Consecutive tuples of one stream of one task."""

    def __init__(
        self,
        component: str,
        stream: str,
        fields: tuple[str, ...],
        columns: Sequence[Sequence[Any]],
        count: int,
        times: list[Any] | None,
        make: Callable[[int], Tuple],
        source: Source | None = None,
        span: tuple[int, int] | None = None,
        make_all: Callable[[], list[Tuple]] | None = None,
    ) -> None:
        self.component = component
        self.stream = stream
        self.fields = fields
        self.columns = columns
        self.count = count
        self.times = times
        """In ticks; None for one that cannot be read, if those are late; None if untimed."""
        self.source = source or Source(component, stream, -1, fields)
        """Where they come from, as tuples tell it."""
        self.span = span
        """The lowest and the highest time, if they are known."""
        self.tuple = make
        """Make the tuple at a place."""
        self._make_all = make_all

    def tuples(self) -> list[Tuple]:
        """Make all the tuples."""
        if self._make_all is not None:
            return self._make_all()
        return list(map(self.tuple, range(self.count)))


def is_in_time(times: Sequence[Any], watermark: int) -> bool:
    """Return True if none of the times is before the watermark, and none is None."""
    try:
        return min(times, default=watermark) >= watermark
    except TypeError:  # one is None
        return False


class OperatorTask(Protocol):
    """The task of an operator, as far as the operator may use it."""

    @property
    def component(self) -> Any:
        """The bolt's instance, prepared."""

    @property
    def owner(self) -> str:
        """The task, for messages: "bolt 'mean' task 3"."""

    @property
    def conf(self) -> Mapping[str, Any]: ...

    def now(self) -> float:
        """Return the batch's clock."""

    @property
    def follows_tuples(self) -> bool:
        """True iff no tuple is expected before the highest time so far less the lag.

        That is so of a single input whose times are born with its tuples. Of several, and behind an
        operator in event time, only the watermark says what is complete.
        """

    def emit(self, rows: list[list[Any]], stream: str = "default") -> None:
        """Emit value lists that belong to no tuple tree."""

    def emit_anchored(
        self, rows: Rows, places: Sequence[int], values: list[list[Any]], stream: str = "default"
    ) -> None:
        """Emit value lists, each anchored to the tuple at a place; while `rows` is taken in."""

    def set_aside(self, rows: Rows, places: Iterable[int]) -> None:
        """Count these tuples as late, and emit them on the late stream, if there is one."""

    def note_expired(self, count: int) -> None:
        """Count tuples that wanted what is not kept any more."""

    def acks(self, tuples: Iterable[Tuple]) -> None:
        """Ack tuples that were kept, with `acks = "expiry"`."""

    def fails(self, tuples: Iterable[Tuple], reason: str | None) -> None:
        """Fail tuples that were kept, with `acks = "expiry"`."""

    def reason_to_fail(self, error: BaseException, tup: Tuple | None) -> str | None:
        """Return the reason to fail a tuple with, or raise the error that stops the topology."""

    def changed_attributes(self) -> list[str]:
        """Return the component's attributes that are not as `prepare` left them, once saved."""

    def users_code(self) -> AbstractContextManager[None]:
        """Return what goes around calls of the user's code."""

    def failed(self, error: BaseException) -> None:
        """Deal with an error that left the user's code, as the settings say."""

    def warn_once(self, text: str) -> None: ...


class Operator:
    """The work of one task of a timed bolt, as the module's head tells it."""

    state_rows: int = 0
    """How many rows of state there are: windows, cells or tuples."""

    def load(self, saved: Mapping[str, bytes], watermark: int) -> None:
        """Take over the state of the last commit."""

    def rows(self, rows: Rows) -> None:
        """Take in some tuples."""
        raise NotImplementedError

    def begin(self, clock: Clock) -> None:
        """Do what is due before a batch's tuples; both watermarks are the last batch's."""

    def advance(self, clock: Clock) -> int:
        """Do what is due, in order; return how much that was."""
        raise NotImplementedError

    def save(self, changes: Any) -> None:
        """Add what changed to the batch's changes."""

    def wakes_at(self) -> float | None:
        """Return when, by the clock, something is due."""
        return None

    def next_event(self) -> int | None:
        """Return the watermark at which something is due, if known."""
        return None

    def oldest(self) -> int | None:
        """Return the start of the oldest thing held, in ticks."""
        return None


class TimedBolt(Bolt):
    """The base of bolts that work in event time; see the module's head."""

    event_time: EventTime | None = None
    acks = "state"
    late_stream: str | None = None
    """The declared stream of late tuples, with one field that holds the tuple."""
    needs_whole_requests = False
    """Whether the tuples of a request have to come in one batch: behind a loop they do not."""

    def execute(self, tup: Any) -> None:
        """Is never called: the operator gets the tuples, by the column."""
        raise NotImplementedError

    def operator(self, task: OperatorTask) -> Operator:
        """Make the operator of one task, after `prepare`."""
        raise NotImplementedError

    def configure(self, conf: Mapping[str, Any]) -> None:
        """Take settings into account, the topology's and the component's; may be called again."""

    def timing(self) -> EventTime | None:
        """Return the event time of the inputs; None for a bolt by arrival."""
        return self.event_time

    def read_inputs(self, inputs: Sequence[InputFields]) -> None:
        """Take note of what the bolt reads, before it declares its outputs."""

    def describe_time(self) -> str:
        """Return the bolt's time in words, for `topo explain`."""
        time = self.timing()
        if time is None:
            return "by arrival"
        if time.extractor is not None:
            source = "by an extractor"
        else:
            source = "of the results read" if time.field is None else repr(time.field)
        idle = "waits for idle inputs" if time.idle is None else f"inputs idle after {time.idle}"
        held = ", waits for pending messages" if time.hold_pending else ""
        return f"event time {source}, lag {time.lag or 0}, {idle}{held}"

    def describe_work(self) -> Sequence[str]:
        """Return what the bolt does, a line for each step, for `topo explain`."""
        return ()

    def watermark_every(self) -> float:
        """Return how many seconds apart the watermark may move at least; 0: in every batch."""
        return 0.0

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterable[Problem]:
        """Yield the problems of the declaration, given what the bolt reads and declares."""
        return ()

    def records_by_key(self, inputs: Sequence[InputFields]) -> Sequence[str]:
        """Return the names of the saved mappings by namespace whose keys are those of the input.

        They are dealt if the number of tasks changes; with others, it cannot.
        """
        return ()

    def warnings(self, where: str, is_finite: bool) -> Iterable[str]:
        """Yield what is allowed, and is hardly what was meant; all input may be finite."""
        return ()

    def result_time(self, stream: str) -> tuple[str, int] | None:
        """Return the output field with a result's time, and what to add to it, in ticks."""
        return None

    def result_delay(self) -> int:
        """Return how far behind the watermark a result's time may be, in ticks."""
        return 0

    def time_field(self, read: InputFields) -> str | None:
        """Return the field with the time in an input; None if it has none."""
        time = self.timing()
        if time is None or read.component in time.untimed:
            return None
        return time.field_of(read.component)


def spouts_before(
    component: str, reads: Callable[[str], Iterable[str]], is_timed: Callable[[str], bool]
) -> set[str]:
    """Return the spouts that a component's tuples come from, other than by a timed bolt.

    `reads` returns the components that one reads: none of a spout.
    """
    found: set[str] = set()
    rest = list(reads(component))
    seen = {component}
    while rest:
        name = rest.pop()
        if name in seen or is_timed(name):
            continue
        seen.add(name)
        before = list(reads(name))
        rest += before
        if not before:
            found.add(name)
    return found
