"""`WindowedBolt`: Storm's windows over raw tuples, by key where wanted, with state.

With nothing but a length and a slide it behaves as Storm's `BaseWindowedBolt`: `storm` has the
rules. With a session, a trigger or an allowed lateness, windows are [start, end), lateness is per
window, and each pane is an execution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from topo.components import OutputFieldsDeclarer, StatefulBolt
from topo.errors import Problem, WindowError
from topo.event_time import Duration, EventTime
from topo.operators.inputs import key_fields, key_problems, missing_fields
from topo.timed import InputFields, Operator, OperatorTask, TimedBolt
from topo.tuples import Tuple
from topo.windows.assigners import Session, Sliding, Tumbling
from topo.windows.executor import ARRIVAL_IN_US, PaneExecutor
from topo.windows.records import ReportRules
from topo.windows.storm import Extent
from topo.windows.storm_executor import StormExecutor
from topo.windows.triggers import Trigger, check_trigger, prepared
from topo.windows.window import (
    STORMS_SETTINGS,
    Window,
    check_ack,
    check_extent,
    check_lateness,
    check_mode,
    extent_in_ticks,
    extent_of,
    interval_secs,
    lateness_ticks,
)

B = TypeVar("B", bound="WindowedBolt")


class WindowedBolt(TimedBolt, StatefulBolt):
    """A bolt whose `execute` gets a window at a time.

    A length or a slide is an int, a count of tuples, or a timedelta. The class attributes do what
    the `with_...` methods do, so that a bolt can carry its window. What a window holds is saved
    with the state, so inputs are acked at once: with `ack = "expiry"` they are acked when they
    leave the window, as Storm does, and emits are anchored to all tuples of the window.
    """

    length: ClassVar[int | timedelta | None] = None
    slide: ClassVar[int | timedelta | None] = None
    timestamp_field: ClassVar[str | None] = None
    timestamp_unit: ClassVar[str] = "ms"
    lag: ClassVar[Duration] = 0
    idle: ClassVar[timedelta | None] = timedelta(seconds=5)
    watermark_interval: ClassVar[timedelta] = timedelta(0)
    key: ClassVar[str | Iterable[str] | None] = None
    session: ClassVar[Duration | Callable[[Any], Duration] | None] = None
    allowed_lateness: ClassVar[Duration | str] = 0
    trigger: ClassVar[Trigger | None] = None
    mode: ClassVar[str] = "accumulate"
    ack_mode: ClassVar[str] = "state"

    # -- Storm's configuration ----------------------------------------------------------------

    def with_window(self: B, length: int | timedelta, slide: int | timedelta | None = None) -> B:
        """Have windows of this length; without a slide, one for each tuple."""
        check_extent(length, "the length of a window")
        if slide is not None:
            check_extent(slide, "the slide of a window")
        return self._set(length=length, slide=slide)

    def with_tumbling_window(self: B, length: int | timedelta) -> B:
        """Have windows end to end."""
        return self.with_window(length, length)

    def with_full_windows(self: B) -> B:
        """Have windows of counts begin with the first tuple, and give only those that are full.

        Storm's end with every n-th tuple, n being the slide, so that the first ones have less.
        """
        return self._set(_only_full=True)

    def with_timestamp_field(self: B, name: str, unit: str = "ms") -> B:
        """Take the time from a field."""
        if not isinstance(name, str):
            raise WindowError(f"a timestamp field is a name; got {name!r}")
        return self._retimed(field=name, extractor=None, unit=unit)

    def with_timestamp_extractor(self: B, extractor: Callable[[Tuple], Any], unit: str = "ms") -> B:
        """Take the time that a function of the tuple returns."""
        if not callable(extractor):
            raise WindowError(f"a timestamp extractor is a function of a tuple; got {extractor!r}")
        return self._retimed(field=None, extractor=extractor, unit=unit)

    def with_event_time(self: B, time: EventTime) -> B:
        """Take the time as an EventTime says, with all its options."""
        if not isinstance(time, EventTime):
            raise WindowError(f"with_event_time takes an EventTime; got {time!r}")
        return self._set(_time=time)

    def with_lag(self: B, lag: timedelta) -> B:
        """Have the watermark stay this far behind the highest time."""
        EventTime("", lag=lag)
        return self._set(_lag=lag)

    def with_idle(self: B, idle: timedelta | None) -> B:
        """Leave an input out that had nothing for so long; None waits for ever, as Storm does."""
        EventTime("", idle=idle)
        return self._set(_idle=idle)

    def with_watermark_interval(self: B, interval: timedelta) -> B:
        """Have the watermark move at most this often; by default it does in every batch."""
        return self._set(_interval=interval_secs(interval))

    def with_late_tuple_stream(self: B, stream: str) -> B:
        """Declare a stream with the field `late_tuple`, and emit late tuples on it."""
        if not isinstance(stream, str) or not stream:
            raise WindowError(f"a late stream has a name; got {stream!r}")
        return self._set(late_stream=stream)

    def with_persistence(self: B) -> B:
        """Do nothing: windows are in committed state anyway."""
        return self

    def with_max_events_in_memory(self: B, number: int) -> B:
        """Do nothing: a window's tuples are in memory, and saved as they come."""
        return self

    def with_message_id_field(self: B, name: str) -> B:
        """Do nothing: state is exactly-once, so that no tuple is counted twice."""
        return self

    # -- beyond Storm -------------------------------------------------------------------------

    def with_key(self: B, *fields: str) -> B:
        """Have windows of its own for each value of these fields."""
        if not fields:
            raise WindowError("with_key takes the names of fields", hint='with_key("user")')
        return self._set(_key=key_fields(fields))

    def with_session(self: B, gap: Duration | Callable[[Tuple], Duration]) -> B:
        """Have windows of activity: a tuple joins those within the gap of it."""
        return self._set(_session=Session(gap))

    def with_allowed_lateness(self: B, lateness: Duration | str) -> B:
        """Keep windows for tuples that come after the end; then execute them again."""
        check_lateness(lateness)
        return self._set(_lateness=lateness)

    def with_trigger(
        self: B,
        trigger: Trigger,
        mode: str = "accumulate",
        *,
        on_time: str = "always",
        final: str = "if_new",
    ) -> B:
        """Execute a window when the trigger says so; `discard` gives only what is new."""
        check_trigger(trigger)
        check_mode(mode)
        ReportRules(mode, 0, on_time, final)  # which looks at the words
        return self._set(_trigger=trigger, _mode=mode, _on_time=on_time, _final=final)

    def with_ack(self: B, mode: str) -> B:
        """Ack inputs with the state ("state"), or when they leave the window ("expiry")."""
        check_ack(mode)
        return self._set(ack_mode=mode)

    def _set(self: B, **settings: Any) -> B:
        vars(self).update(settings)
        return self

    def _retimed(self: B, **changes: Any) -> B:
        time = vars(self).get("_time") or self.event_time or EventTime("")
        return self._set(_time=replace(time, **changes))

    # -- what it comes to ---------------------------------------------------------------------

    def execute(self, window: Window) -> None:
        """Process one window."""
        raise NotImplementedError

    def emit(  # type: ignore[override]
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        stream: str = "default",
        anchors: Any = None,
        task_ids: bool = False,
    ) -> list[int] | None:
        """Emit a tuple; with `ack = "expiry"` it is anchored to all tuples of the window."""
        if anchors is None:
            anchors = getattr(self.collector, "window_anchors", ())
        tasks: list[int] | None = self.collector.emit(
            values, stream=stream, anchors=anchors, task_ids=task_ids
        )
        return tasks

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        super().declare_output_fields(declarer)
        late = self.late_stream
        by_setting = vars(self).get("_late_by_setting", False)
        if late is not None and late not in declarer.streams and not by_setting:
            declarer.declare_stream(late, "late_tuple")

    @property
    def acks(self) -> str:  # type: ignore[override]
        return self.ack_mode

    def timing(self) -> EventTime | None:
        """Return the event time that the settings come to; None for windows by arrival."""
        own, cls = vars(self), type(self)
        time: EventTime | None = own.get("_time") or self.event_time
        if time is None and cls.timestamp_field is not None:
            time = EventTime(cls.timestamp_field, unit=cls.timestamp_unit)
        if time is None:
            return None
        lag = own.get("_lag", cls.lag)
        if lag:
            time = replace(time, lag=lag)
        if "_idle" in own or cls.idle != WindowedBolt.idle:
            time = replace(time, idle=own.get("_idle", cls.idle))
        return time

    def watermark_every(self) -> float:
        own: float | None = vars(self).get("_interval")
        return interval_secs(type(self).watermark_interval) if own is None else own

    def key_fields(self) -> tuple[str, ...]:
        """Return the fields of the key; none for one window of all."""
        own: tuple[str, ...] | None = vars(self).get("_key")
        # Of the class: an instance's attribute `key` may be anything of the user's.
        return key_fields(type(self).key) if own is None else own

    def configure(self, conf: Mapping[str, Any]) -> None:
        """Take Storm's settings, `topology.bolts.*`, where the bolt does not say otherwise."""
        length = extent_of(conf, "window.length.count", "window.length.duration.ms")
        slide = extent_of(
            conf, "window.sliding.interval.count", "window.sliding.interval.duration.ms"
        )
        if length is not None and self.length is None and self.sessions is None:
            self.with_window(length, slide)
        if slide is not None and self.slide is None and self.length is not None:
            self.with_window(self.length, slide)
        name = conf.get(STORMS_SETTINGS + "tuple.timestamp.field.name")
        if name is not None and self.timing() is None:
            self.with_timestamp_field(name)
        lag = conf.get(STORMS_SETTINGS + "tuple.timestamp.max.lag.ms")
        if lag is not None and not vars(self).get("_lag", type(self).lag):
            self.with_lag(timedelta(milliseconds=lag))
        interval = conf.get(STORMS_SETTINGS + "watermark.event.interval.ms")
        if interval is not None and "_interval" not in vars(self):
            self.with_watermark_interval(timedelta(milliseconds=interval))
        late = conf.get(STORMS_SETTINGS + "late.tuple.stream")
        if late is not None and self.late_stream is None:
            self._set(late_stream=late, _late_by_setting=True)

    def problems(
        self, where: str, inputs: Sequence[InputFields], tasks: int, outputs: Iterable[str]
    ) -> Iterator[Problem]:
        own = vars(self)
        if type(self).execute is WindowedBolt.execute:
            text = f"{where} does not override 'execute'"
            yield Problem("no-execute", where, text, "write def execute(self, window)")
        if self.length is None and self.sessions is None:
            text = f"{where} is a WindowedBolt without a window"
            if self.slide is not None:
                text = f"{where} has a slide, but no length"
            yield Problem("window", where, text, "give it one: .with_window(length, slide)")
            return
        time = self.timing()
        if own.get("_late_by_setting") and self.late_stream not in set(outputs):
            text = (
                f"{where}: the late stream {self.late_stream!r} of "
                f"{STORMS_SETTINGS}late.tuple.stream must be declared"
            )
            hint = f"write .with_late_tuple_stream({self.late_stream!r})"
            yield Problem("late-stream", where, text, hint)
        if self.late_stream is not None and time is None:
            text = f"{where}: a late stream needs a time: by arrival, nothing is late"
            yield Problem("late-stream", where, text, "give it .with_timestamp_field(name)")
        check_ack(self.ack_mode)
        check_mode(self.rules["mode"])
        self.watermark_every()
        for read in inputs:
            yield from missing_fields(where, read, self.key_fields(), "window-key")
            yield from key_problems(self.key_fields(), where, read, tasks)
        if self.is_general and self.ack_mode == "expiry":
            text = f'{where}: ack="expiry" goes with windows of a length and a slide only'
            yield Problem("window-ack", where, text, 'write .with_ack("state")')
        if own.get("_only_full") and not isinstance(self.length, int):
            text = f"{where}: only windows of counts can be full"
            yield Problem("window", where, text, "give length and slide as counts")
        self.check_window(time or ARRIVAL_IN_US)

    @property
    def only_full(self) -> bool:
        """True if only full windows of counts are given."""
        return bool(vars(self).get("_only_full"))

    @property
    def is_general(self) -> bool:
        """True if panes, not Storm's windows, are executed."""
        rules = self.rules
        return bool(self.sessions or rules["trigger"] or rules["lateness"])

    @property
    def sessions(self) -> Session | None:
        """The sessions that are wanted, if they are."""
        own: Session | None = vars(self).get("_session")
        gap = type(self).__dict__.get("session", type(self).session)
        if own is None and gap is not None:
            return Session(gap.__func__ if isinstance(gap, staticmethod) else gap)
        return own

    def check_window(self, time: EventTime) -> None:
        """Raise a WindowError if the window cannot be."""
        if self.is_general:
            self.assigner(time)
            lateness_ticks(self.rules["lateness"], time)
            if self.rules["trigger"] is not None:
                check_trigger(self.rules["trigger"])
                prepared(self.rules["trigger"], time)
        else:
            self.extents(time)

    def extents(self, time: EventTime) -> tuple[Extent, Extent]:
        """Return length and slide."""
        length, slide = self.length, self.slide
        if length is None:
            raise WindowError("a WindowedBolt needs a window", hint="with_window(length, slide)")
        check_extent(length, "the length of a window")
        if slide is None:
            return extent_in_ticks(length, time), Extent(1, by_time=False)
        check_extent(slide, "the slide of a window")
        return extent_in_ticks(length, time), extent_in_ticks(slide, time)

    def assigner(self, time: EventTime) -> Any:
        """Return the windows of the general kind."""
        session = self.sessions
        if session is not None:
            return session.in_ticks(time)
        length, slide = self.length, self.slide
        if not isinstance(length, timedelta) or not isinstance(slide, timedelta | None):
            raise WindowError(
                "a trigger or an allowed lateness goes with windows by time",
                hint="give length and slide as timedeltas",
            )
        spec = Tumbling(length) if slide in (None, length) else Sliding(length, slide or length)
        return spec.in_ticks(time)

    @property
    def rules(self) -> dict[str, Any]:
        """The settings of panes."""
        own, cls = vars(self), type(self)
        return {
            "trigger": own.get("_trigger", cls.trigger),
            "mode": own.get("_mode", cls.mode),
            "lateness": own.get("_lateness", cls.allowed_lateness),
            "on_time": own.get("_on_time", "always"),
            "final": own.get("_final", "if_new"),
        }

    def operator(self, task: OperatorTask) -> Operator:
        return PaneExecutor(self, task) if self.is_general else StormExecutor(self, task)


StatefulWindowedBolt = WindowedBolt
"""Storm's name for a windowed bolt with state; here every one has `self.state`."""
