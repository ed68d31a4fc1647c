"""Replays a table at a chosen speed: a pandas frame, rows, or a file that is read as it goes.

Rows have a time, and come with the gaps that lie between their times, divided by the speed; or so
many a second. How far it is commits with the batch, so that a restart repeats nothing; the clock
begins anew there, so that what was due meanwhile does not come at once.
"""

from __future__ import annotations

import csv
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from topo.components import StatefulSpout
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive, load_client
from topo.connectors.inflight import InflightSpout
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
from topo.errors import ComponentError, words_of
from topo.tuples import Fields

_NAME = "ReplaySpout"
_AHEAD = 1_000
"""Rows that are read at once."""
_FORMS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_KEY = "replay"


class Row(NamedTuple):
    """A row; what `translate` is given."""

    number: int
    """Counted from 0."""
    value: dict[str, Any]


class ReplaySpout(InflightSpout, StatefulSpout):
    """A spout of the rows of a table, one after the other.

    `data` is a pandas DataFrame, a list of dicts, or the path of a file: `.csv`, `.tsv`, `.jsonl`
    or `.parquet`, where the task runs. `fields` are columns, by default all of a frame's or of the
    first row's. `types` has functions for columns of a CSV file: `{"price": float}`.

    With `time`, a column of datetimes, of ISO texts or of seconds, rows come `speed` times as fast
    as they once did; else `rate` rows a second. Without either they come as fast as they are taken.
    `repeat` is how often all of it comes, None for ever. Rows are tracked if there are ackers,
    unless `track=False`: one that fails is emitted again after a pause, `retry`.
    """

    connector = _NAME
    transient = (*InflightSpout.transient, "_ahead", "_clock", "_rows")

    @answering()
    def __init__(
        self,
        data: Any,
        *,
        time: str | None = None,
        speed: float = 1.0,
        rate: float | None = None,
        repeat: int | None = 1,
        fields: str | Iterable[str] = (),
        types: Mapping[str, Callable[[str], Any]] | None = None,
        translate: Callable[[Row], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_positive(_NAME, speed=speed, rate=rate, repeat=repeat)
        if time is not None and rate is not None:
            raise ComponentError(
                f"{_NAME}: time={time!r} and rate={rate!r}: either the rows' times say when they "
                "come, or the rate does"
            )
        if time is None and speed != 1.0:
            raise ComponentError(
                f"{_NAME}: speed={speed!r} of what?", hint='time="ts" names the column of times'
            )
        self.data, self.types = _checked(data), dict(types or {})
        self.time, self.speed, self.rate, self.repeat = time, speed, rate, repeat
        columns = _columns(self.data)
        if columns is None and not tuple(Fields(fields)):
            raise ComponentError(
                f"{_NAME}: the columns of {str(self.data)!r} are not known before it is read",
                hint='name those to emit: fields=("user", "price")',
            )
        if columns is not None and time is not None and time not in columns:
            raise ComponentError(f"{_NAME}: time={time!r}; the columns are {', '.join(columns)}")
        self.set_up_reading(
            Row,
            (),
            track=track,
            retry=retry,
            value="json",
            fields=tuple(Fields(fields)) or columns or (),
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )
        if isinstance(self.data, Path) and self.data.suffix == ".parquet":
            self.requires: Iterable[str] = ("pyarrow>=18",)

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_reading(conf)
        self._rows: Iterator[dict[str, Any]] | None = None
        self._ahead: deque[dict[str, Any]] = deque()
        self._clock: tuple[float, float] | None = None
        """When the clock began, and the time of the row that came then."""

    def activate(self) -> None:
        self._clock = None

    @property
    def _at(self) -> tuple[int, int]:
        """The round, and the row in it that is next."""
        at: tuple[int, int] = self.state.raw().get(_KEY, (0, 0))
        return at

    def is_exhausted(self) -> bool:
        """Return True if all has come as often as it is to."""
        if self.failed or self.rest:
            return False
        has_ended = self.repeat is not None and self._at[0] >= self.repeat
        return has_ended or (self.repeat is not None and not self.owns(_KEY))

    # -- rows ---------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        if self.emit_again() or not self.owns(_KEY):
            return
        if self.repeat is not None and self._at[0] >= self.repeat:
            return
        self.emit_page(self._arrivals(), is_decoded=True)

    def _arrivals(self) -> Iterator[Arrival]:
        """Yield the rows that are due, with times and types as they are to be."""
        count = 0
        for number, value in self._due_rows(self.most(_AHEAD)):
            count += 1
            where = f"row {number} of {_shown(self.data)}"
            try:
                self._convert(value)
            except Exception as error:
                self._reader.tell_bad(self, value, error, where)
            else:
                yield Arrival(value, partial(Row, number), where)
        if count:
            self.context.counter("rows", count)

    def _due_rows(self, most: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows that are due, with their numbers, and count them as emitted."""
        now = self.context.now()
        for _ in range(most):
            turn, number = self._at
            if not self._ahead:
                self._ahead = self._read(number)
            if not self._ahead:
                self._rows, self._clock = None, None
                self.state[_KEY] = (turn + 1, 0)
                self.context.end_batch()
                if number == 0:
                    raise ComponentError(f"{_NAME}: {_shown(self.data)} has no rows")
                return
            if self._due(number, self._ahead[0], now) > now:
                return
            self.state[_KEY] = (turn, number + 1)
            yield number, self._ahead.popleft()

    def _due(self, number: int, row: Mapping[str, Any], now: float) -> float:
        """Return when a row is to come; a row without a time comes at once."""
        if self.time is None and self.rate is None:
            return now
        if self.rate is not None:
            at = number / self.rate
        else:
            seconds = _seconds(row.get(self.time or ""))
            if seconds is None:
                return now
            at = seconds / self.speed
        if self._clock is None:
            self._clock = (now, at)
        began, first = self._clock
        return began + at - first

    def _convert(self, value: dict[str, Any]) -> None:
        """Give a row's columns their types; raise ValueError for one that has no time."""
        if self.time is not None and _seconds(value.get(self.time)) is None:
            raise ValueError(f"{self.time}={value.get(self.time)!r} is no time")
        for name, convert in self.types.items():
            if value.get(name) is not None:
                value[name] = convert(value[name])

    def _read(self, number: int) -> deque[dict[str, Any]]:
        """Return the next rows, which begin with this one."""
        try:
            if self._rows is None:
                self._rows = islice(_rows_of(self.data), number, None)
            return deque(islice(self._rows, _AHEAD))
        except OSError as error:
            raise ComponentError(
                f"{_NAME}: {_shown(self.data)} cannot be read: {words_of(error)}",
                hint="the file has to be where the tasks run",
            ) from error


def _checked(data: Any) -> Any:
    """Return what is to be replayed; raise ComponentError if it is nothing of the kind."""
    if isinstance(data, str | Path):
        path = Path(data)
        if path.suffix not in _FORMS:
            raise ComponentError(
                f"{_NAME}: {str(path)!r} is none of {', '.join(_FORMS)}",
                hint="other forms: read them by pandas, and give the frame",
            )
        return path
    if hasattr(data, "to_dict") and hasattr(data, "iloc"):
        return data
    if isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        return data
    raise ComponentError(
        f"{_NAME}: data is a {type(data).__name__}",
        hint="a pandas DataFrame, a list of dicts that is not empty, or a path",
    )


def _columns(data: Any) -> tuple[str, ...] | None:
    if isinstance(data, Path):
        return None
    return tuple(map(str, data.columns if hasattr(data, "iloc") else data[0]))


def _shown(data: Any) -> str:
    if isinstance(data, Path):
        return repr(str(data))
    return "the frame" if hasattr(data, "iloc") else "the list"


def _rows_of(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, Path):
        yield from _rows_in(data)
    elif hasattr(data, "iloc"):
        for start in range(0, len(data), _AHEAD):
            for row in data.iloc[start : start + _AHEAD].to_dict("records"):
                yield {str(name): _plain(value) for name, value in row.items()}
    else:
        yield from map(dict, data)


def _rows_in(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".parquet":
        parquet = load_client("pyarrow.parquet", _NAME, "files")
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_AHEAD):
                yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8-sig", newline="") as lines:
        if path.suffix in (".csv", ".tsv"):
            delimiter = "\t" if path.suffix == ".tsv" else ","
            for row in csv.DictReader(lines, delimiter=delimiter):
                yield {name: value or None for name, value in row.items() if name is not None}
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _object(path, number, line)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError(f"a {type(value).__name__}, and no object")
    except (ValueError, RecursionError) as error:
        raise ComponentError(f"{_NAME}: line {number} of {str(path)!r}: {error}") from error
    return value


def _plain(value: Any) -> Any:
    """Return a value of a frame as Python has it: NaN and NaT are None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, datetime):
        return value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    return value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value


def _seconds(value: Any) -> float | None:
    """Return a time in seconds, or None for what is no time."""
    try:
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except (ValueError, OverflowError):
        pass
    return None
