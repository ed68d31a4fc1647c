"""Reads files: once, as they appear, or as they grow.

A file's position is keyed state under its path, and goes with the batch that emitted up to it. So
what comes of a file counts exactly once in the state of the bolts, whatever dies. Files are dealt
over the tasks by a hash of their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from topo.components import StatefulSpout
from topo.connectors.arguments import answering
from topo.connectors.base import BadRecord, OnBad, check_choice, check_positive
from topo.connectors.files.listing import (
    ListedFile,
    list_files,
    look_at,
    move_aside,
    with_inode,
)
from topo.connectors.files.logs import KnownLogs, dealt_name, head_of, is_same_log
from topo.connectors.files.objects import ObjectStore, check_place, is_object
from topo.connectors.files.readers import MAX_RECORD, LineReader, Piece, Reader, open_reader
from topo.connectors.files.records import RecordReader, Translation
from topo.connectors.files.turns import Turns
from topo.connectors.inflight import DEAD_FIELDS
from topo.connectors.picking import Missing
from topo.connectors.retries import Backoff
from topo.errors import ComponentError, Unavailable, words_of
from topo.tuples import Fields

FORMATS = ("lines", "json", "csv", "parquet", "arrow")
_NAME = "FileSpout"


class FileSpout(StatefulSpout):
    """A spout of the records of files.

    `path` is a file, a directory or a pattern; or `s3://BUCKET/KEY`, where the key may be a prefix
    that ends in "/", or a pattern, and `storage` has arguments of `boto3.client`. `mode` is "once":
    what is there is read, and then the spout is exhausted; "watch": files that appear are read,
    too; "tail": files are followed as they grow, through rotation by rename, create or
    copytruncate.

    A record is a str of `lines`, a value of `json` (one to a line), a dict of `csv` and `avro`, a
    list of `parquet` and `arrow`. `translate` makes of a record the values to emit, `(stream,
    values)`, of which `streams` has the fields, or None for nothing; without it they are the
    record's `fields`.

    `guarantee="at_least_once"` tracks each record: one that fails is read and emitted again after a
    pause, `retry`; after its retries it goes to the stream `dead`, or is reported.

    Files are read one after the other. In event time each is a part in an order of its own, so that
    those that wait hold the watermark back; `in_order` says that files come in the order of their
    times, as those of successive days do.
    """

    transient = (
        "_records",
        "_reader",
        "_reading",
        "_listed",
        "_queue",
        "_logs",
        "_left",
        "_turns",
        "_may_replay",
        "_next_listing",
        "_store",
    )

    @answering()
    def __init__(
        self,
        path: str | Path,
        format: Literal["lines", "json", "csv", "avro", "parquet", "arrow"] = "lines",
        *,
        mode: Literal["once", "watch", "tail"] = "once",
        fields: str | Iterable[str] = (),
        header: bool = True,
        translate: Callable[[Any], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once",
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        retry: Backoff | None = None,
        after: str = "keep",
        in_order: bool = False,
        list_secs: float = 1.0,
        max_age_secs: float | None = None,
        page: int = 2_000,
        max_record: int = MAX_RECORD,
        storage: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        check_choice(_NAME, "format", format, (*FORMATS, "avro"))
        check_choice(_NAME, "mode", mode, ("once", "watch", "tail"))
        check_choice(_NAME, "guarantee", guarantee, ("exactly_once", "at_least_once"))
        check_choice(_NAME, "after", after.partition(":")[0], ("keep", "delete", "move"))
        self.path, self.format, self.mode = str(path), format, mode
        self.storage = dict(storage)
        self.requires = check_place(_NAME, self.path, self.storage)
        if format == "avro":
            self.requires = (*self.requires, "fastavro>=1.9")
        self.fields = tuple(Fields(fields))
        self.header, self.guarantee, self.after = header, guarantee, after
        self.in_order = in_order
        self.list_secs, self.max_age_secs = list_secs, max_age_secs
        check_positive(_NAME, page=page, max_record=max_record)
        self.page, self.max_record = page, max_record
        if mode_error := self._contradiction():
            raise ComponentError(f"{_NAME}: {mode_error}")
        self.retry = retry or Backoff()
        self.translation = Translation(
            format,
            self.fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
            dead=DEAD_FIELDS if self.retry.retries is not None else (),
        )
        self.outputs: Any = self.translation.outputs

    def _contradiction(self) -> str:
        if self.mode == "tail" and self.format not in ("lines", "json"):
            return f"mode='tail' follows lines and JSON, not {self.format}"
        if self.mode == "tail" and is_object(self.path):
            return "mode='tail' follows files as they grow, and objects do not"
        if self.mode == "tail" and self.after != "keep":
            return f"after={self.after!r} does not go with mode='tail', whose files never end"
        if self.after == "move:":
            return "after='move:' names no directory; write 'move:DIRECTORY'"
        return ""

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self._reader: Reader | None = None
        self._records = RecordReader(self.translation, self)
        self._store: ObjectStore | None = None
        self._reading = ""
        self._listed: list[ListedFile] | None = None  # those of this task
        self._queue: list[ListedFile] = []  # of them, those that are not read to their end
        self._next_listing = 0.0
        self._logs = KnownLogs({})
        self._left: set[str] = set()  # keys of logs that are followed, and are listed no more
        self._turns = Turns()
        self._may_replay = True  # what was restored may hold records that failed
        self.has_listed = False

    def close(self) -> None:
        self._let_go()
        if self._store is not None:
            self._store.close()

    def deactivate(self) -> None:
        self._let_go()

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task of a file; a log's is that of its name without the number behind it."""
        return super().owner(dealt_name(key) if self.mode == "tail" else key, tasks)

    def is_exhausted(self) -> bool:
        """Return True if every file of this task has been read to its end."""
        if self.mode != "once" or self._listed is None or self._queue:
            return False
        return not (
            self._may_replay and any(entry.get("failed") for entry in self.state.raw().values())
        )

    # -- reading ------------------------------------------------------------------------------

    def next_tuple(self) -> None:
        if self._replay():
            return
        self._list()
        if self.mode == "tail":
            self._follow()
            return
        place = 0
        while place < len(self._queue):
            current = self._queue[place]
            moved = self._read(current)
            if self._entry(current.path).get("done"):
                del self._queue[place]
            else:
                place += 1
            if moved:
                return

    def _follow(self) -> None:
        """Emit some records of the first log in turn that has grown."""
        self._turns.begin()
        while (log := self._turns.first()) is not None:
            if self._read(log):
                self._turns.was_read()
                return
            self._turns.pass_on()

    def _list(self) -> None:
        """Look which files there are, but not all the time."""
        now = self.context.now()
        if self._listed is not None and (self.mode == "once" or now < self._next_listing):
            return
        self._next_listing = now + self.list_secs
        store = self._objects()
        listed = list_files(self.path) if store is None else store.list(self.path)
        if self.mode == "once" and not listed and not self.has_listed:
            raise ComponentError(
                f"{_NAME}: there is no file {self.path!r}",
                hint="mode='watch' waits for files to appear",
            )
        if self.mode == "tail":
            listed = [found for found in listed if not found.path.endswith(".gz")]
            self._recognise(listed)
        else:
            listed = [found for found in listed if not self._is_aside(found.path)]
            self._look_for_others(listed)
        if self.max_age_secs is not None and listed:
            listed = self._forget_old(listed, listed[-1].mtime - self.max_age_secs)
        self.has_listed = True
        self._listed = [found for found in listed if self.owns(self._key(found))]
        if self.mode == "tail":
            left = self._renamed(self._listed)
            self._left = {self._key(found) for found in left}
            for found in self._listed:  # an empty one may be renamed before it is read
                if (key := self._key(found)) not in self.state:
                    self.state[key] = {"at": 0, "inode": found.inode, "path": found.path}
            logs = [*left, *self._listed]
            at = {key: entry["at"] for key, entry in self.state.raw().items()}
            self._turns.set_logs(logs, [log for log in logs if log.size != at.get(self._key(log))])
            return
        self._queue = [one for one in self._listed if not self._entry(one.path).get("done")]
        self.context.gauge("files_waiting", len(self._queue))

    def _recognise(self, listed: list[ListedFile]) -> None:
        """Find the positions of logs that were renamed since they were listed."""
        self._logs = KnownLogs(self.state.raw())
        for log in listed:
            name = self._logs.key(log)
            if self._known(log) is None and name in self.state:  # of another text
                self._begin_anew(self.state[name])
                self.state[name]["path"] = log.path

    def _known(self, log: ListedFile) -> str | None:
        """Return the key of a log that is followed already; remember the name it has now."""
        key = self._logs.find(log)
        if key is not None and self._entry(key)["path"] != log.path:
            self.state[key]["path"] = log.path
        return key

    def _look_for_others(self, listed: list[ListedFile]) -> None:
        """Forget files whose names have another content now; tell of those that went half read."""
        others = {file.path: file for file in listed}
        for path in list(self.state):
            entry = self.state.raw()[path]
            file = others.get(path)
            if file is not None and _is_same(entry, file):
                continue
            if not entry.get("done") and (file is not None or entry["at"]):
                self._lost(path, entry["at"], "it is another file now" if file else "it is gone")
                self.state[path]["done"] = True
            if file is not None and not entry.get("open"):
                del self.state[path]

    def _lost(self, path: str, at: int, reason: str) -> None:
        """Tell of what can be read no more of a file; wait for it if its directory is gone, too."""
        if not is_object(path) and not os.path.isdir(os.path.dirname(path)):
            raise Unavailable(f"{_NAME}: {path}, read up to {at}: its directory is not there")
        words = f"{reason}, and was not read to its end"
        self._records.tell(self, BadRecord(None, words, f"{path} at {at}"))

    def _forget_old(self, listed: list[ListedFile], oldest: float) -> list[ListedFile]:
        kept = [found for found in listed if found.mtime >= oldest]
        keys = {self._key(found) for found in kept}
        for key in [key for key in self.state if key not in keys]:
            if self.state.raw()[key].get("done"):
                del self.state[key]
        return kept

    def _renamed(self, listed: list[ListedFile]) -> list[ListedFile]:
        """Return files that have gone from the list, and may hold what was not read; forget others.

        A log that was renamed is still in its directory, under a name that the pattern may not
        match; one that is nowhere is gone.
        """
        keys = {self._key(found) for found in listed}
        left = []
        for key in [key for key in self.state if key not in keys]:
            entry = self.state.raw()[key]
            path = with_inode(os.path.dirname(entry["path"]), entry["inode"])
            found = look_at(path) if path is not None else None
            if found is not None and self._known(found) != key:
                found = None  # another file has its inode
            if found is None or (entry.get("left") and found.size <= entry["at"]):
                if not entry.get("open"):
                    del self.state[key]
            else:
                left.append(found)
        return left

    def _key(self, found: ListedFile) -> str:
        """Return what a file's position is filed under: a log's stays when it is renamed."""
        if self.mode == "tail":
            return self._logs.key(found)
        return found.path

    def _entry(self, key: str) -> dict[str, Any]:
        entry: dict[str, Any] | None = self.state.raw().get(key)
        return entry if entry is not None else {}

    def _read(self, found: ListedFile) -> bool:
        """Emit some records of a file; return False if there are none now."""
        key = self._key(found)
        entry = {"at": 0, "inode": found.inode, **self._entry(key), "path": found.path}
        is_tail = self.mode == "tail"
        if not is_tail:
            entry["version"] = found.version
        if is_tail and not self._has_grown(found, entry):
            return False
        most = self.room(self.page) if self._is_tracked else self.page
        is_left = key in self._left
        try:
            reader = self._reader_of(key, found.path)
            piece = reader.read(entry["at"], most, whole=not is_tail or is_left)
        except (OSError, ValueError, EOFError) as error:
            return self._unreadable(found, entry, error)
        moved = piece.end != entry["at"]
        entry["at"] = piece.end
        if is_tail and isinstance(reader, LineReader):
            entry["head"] = head_of(reader.fileno(), piece.end, entry.get("head", (0, 0)))
        self.collector.from_split(key)
        rows, ids, others = self._rows(key, entry, piece)
        count = others + (piece.count if isinstance(rows, dict) else len(rows))
        entry["open"] = entry.get("open", 0) + (count if self._is_tracked else 0)
        if piece.finished and not is_tail:
            entry["done"] = True
            self._let_go()
        if piece.finished and is_left:
            entry["left"] = True
        self.state[key] = entry
        self.emit_many(rows, msg_ids=ids)
        self.context.counter("records", piece.count)
        return bool(count or piece.bad) or (moved and not piece.finished)

    def _has_grown(self, found: ListedFile, entry: dict[str, Any]) -> bool:
        """Return True if a log has more than was read; begin anew if it was truncated."""
        now = look_at(found.path)
        if now is None or now.inode != found.inode:  # renamed since it was listed
            self._let_go()
            self._next_listing = 0.0
            return False
        if now.size < entry["at"]:
            self._begin_anew(entry)
            self.state[self._key(found)] = entry
        return bool(now.size > entry["at"])

    def _is_truncated(self, path: str, entry: Mapping[str, Any]) -> bool:
        """Return True if a log has less than was read of it."""
        now = look_at(path) if self.mode == "tail" else None
        return bool(now is not None and now.size < entry["at"])

    def _begin_anew(self, entry: dict[str, Any]) -> None:
        """Take what a log holds for another text, of which nothing was read."""
        self._let_go()
        entry["at"] = 0
        entry.pop("head", None)
        entry["cut"] = entry.get("cut", 0) + 1
        entry["gone"] = [*entry.get("gone", ()), *entry.pop("failed", ())]
        entry.pop("failures", None)
        self._may_replay = True

    def _reader_of(self, key: str, path: str) -> Reader:
        if self._reader is None or self._reading != key:
            self._let_go()
            self._reader = self._opened(path)
            self._reading = key
        return self._reader

    def _opened(self, path: str) -> Reader:
        def opener(file: str) -> Reader:
            return open_reader(file, self.format, self.fields, self.header, self.max_record)

        store = self._objects()
        return opener(path) if store is None else store.opened(path, opener)

    def _objects(self) -> ObjectStore | None:
        """Return the store of the objects that are read; None if files are."""
        if self._store is None and is_object(self.path):
            self._store = ObjectStore(_NAME, self.path, self.storage)
        return self._store

    def _let_go(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader, self._reading = None, ""

    def _unreadable(self, found: ListedFile, entry: dict[str, Any], error: Exception) -> bool:
        self._let_go()
        if isinstance(error, FileNotFoundError):  # removed since it was listed
            if entry["at"]:
                self._lost(found.path, entry["at"], "it is gone")
            self.state[self._key(found)] = {**entry, "done": True}
            return False
        if isinstance(error, OSError) and not isinstance(error, EOFError) and error.errno:
            raise Unavailable(f"{_NAME}: {found.path}: {words_of(error)}") from error
        where = f"{found.path} from {entry['at']}"
        self._records.tell_bad(self, None, error, where)
        self.state[self._key(found)] = {**entry, "done": True}
        return True

    # -- records ------------------------------------------------------------------------------

    @property
    def _is_tracked(self) -> bool:
        return self.guarantee == "at_least_once"

    def _rows(
        self, key: str, entry: Mapping[str, Any], piece: Piece
    ) -> tuple[Any, list[Any] | None, int]:
        """Return the rows to emit, or their columns, with message ids; tell of what is bad.

        What goes to other streams is emitted; their number comes third.
        """
        others = 0

        def emit_other(stream: str, values: Any, start: int) -> None:
            nonlocal others
            others += 1
            msg_id = _id_of(key, start, entry) if self._is_tracked else None
            self.emit(values, stream=stream, msg_id=msg_id)

        rows, starts = self._records.rows(self, entry["path"], piece, emit_other)
        ids = [_id_of(key, start, entry) for start in starts] if self._is_tracked else None
        return rows, ids, others

    # -- what becomes of records --------------------------------------------------------------

    def ack(self, msg_id: Any) -> None:
        key, start, *cut = msg_id
        entry = self.state.get(key)
        if entry is not None:
            entry["open"] = entry.get("open", 0) - 1
            if _is_of_now(entry, cut):
                entry.get("failures", {}).pop(start, None)

    def fail(self, msg_id: Any, reason: str = "") -> None:
        key, start, *cut = msg_id
        entry = self.state.get(key)
        if entry is None:
            return
        self._may_replay = True
        if not _is_of_now(entry, cut):
            entry.setdefault("gone", []).append(start)
            return
        failures = 1 + entry.get("failures", {}).get(start, (0, 0.0, ""))[0]
        pause = 0.0 if self.retry.gives_up(failures) else self.retry.pause(failures)
        entry.setdefault("failures", {})[start] = (failures, self.context.now() + pause, reason)
        entry.setdefault("failed", []).append(start)

    def _due(self, entry: Mapping[str, Any]) -> int | None:
        """Return where a record begins that failed, and whose pause is over."""
        now, failures = self.context.now(), entry.get("failures", {})
        for start in entry.get("failed", ()):
            if failures.get(start, (0, 0.0, ""))[1] <= now:
                return int(start)
        return None

    def _bury(self, key: str, path: str, start: int, piece: Piece) -> bool:
        """Tell of a record that failed too often; return False if it is to be emitted again."""
        failures, _, reason = self.state.raw()[key].get("failures", {}).get(start, (0, 0.0, ""))
        if not self.retry.gives_up(failures):
            return False
        where = f"{path} at {start}"
        self.context.counter("dead")
        if self.context.this_targets.get("dead"):
            record = next(iter(piece.rows()), None)
            self.emit([record, where, reason, failures], stream="dead")
        else:
            self.report_error(
                f"{where}: a record failed {failures} times, and is given up; "
                f"the last time: {reason}"
            )
        self.ack(_id_of(key, start, self.state.raw()[key]))
        return True

    def _replay(self) -> bool:
        """Emit a record that failed again; return False if there is none."""
        if not self._may_replay:  # there may be files without number
            return False
        self._may_replay = False
        for key, entry in self.state.raw().items():
            self._may_replay |= bool(entry.get("failed"))
            if entry.get("gone"):
                self._may_replay = True
                self._tell_gone(key)
                return True
            start = self._due(entry)
            if start is None:
                continue
            path = entry["path"]
            try:
                path = self._place_of(entry)
                if self._is_truncated(path, entry):  # and not seen by what reads it
                    self._begin_anew(self.state[key])
                    self._tell_gone(key)
                    return True
                with closing(self._opened(path)) as reader:
                    piece = reader.read(start, 1, whole=True)
            except FileNotFoundError:
                self._lost(path, start, "a record of it failed, and it is gone")
                self.state[key]["failed"].remove(start)
                self.ack(_id_of(key, start, self.state.raw()[key]))
                return True
            except OSError as error:
                raise Unavailable(
                    f"{_NAME}: {path}, a record of which failed: {words_of(error)}"
                ) from error
            self.state[key]["failed"].remove(start)
            if self._bury(key, path, start, piece):
                return True
            self.context.counter("replayed")
            self.collector.from_split(key)
            rows, ids, _ = self._rows(key, {**entry, "path": path}, piece)
            self.emit_many(rows, msg_ids=ids)
            return True
        return False

    def _tell_gone(self, key: str) -> None:
        """Tell of the records that failed, and were in a log before it was truncated."""
        entry = self.state[key]
        starts, count = entry["gone"], 0
        try:
            for start in starts:
                self._lost(entry["path"], start, "a record of it failed, and it was truncated")
                count += 1
        finally:
            del starts[:count]
            entry["open"] = entry.get("open", 0) - count

    def _place_of(self, entry: Mapping[str, Any]) -> str:
        """Return where a file is now; raise FileNotFoundError if it is gone, or another one."""
        path: str = entry["path"]
        if self.mode != "tail":
            if self._version_now(path) not in (None, entry.get("version")):
                raise FileNotFoundError(path)
            return path
        there = look_at(path)
        if there is not None and there.inode == entry["inode"]:
            return path
        renamed = with_inode(os.path.dirname(path), entry["inode"])
        log = look_at(renamed) if renamed is not None else None
        if log is None or not is_same_log(entry, log):
            raise FileNotFoundError(path)
        return log.path

    def pre_commit(self, batch_id: int) -> None:
        """Tell which files there are to read: one that waits holds watermarks back."""
        if self._listed is None or not self.collector.hears_splits:
            return
        if self.mode == "tail":
            sizes = {self._key(file): file.size for file in self._listed}
            splits = {key: size > self._entry(key).get("at", 0) for key, size in sizes.items()}
        else:
            waiting = self._queue[:1] if self.in_order else self._queue
            splits = dict.fromkeys(map(self._key, waiting), True)
        self.collector.read_splits(splits)

    def committed(self, batch_id: int) -> None:
        """Remove or move files whose records are all durable."""
        if self.after == "keep":
            return
        for path in [key for key, entry in self.state.raw().items() if self._is_over(entry)]:
            try:
                if self._version_now(path) == self.state.raw()[path].get("version"):
                    self._tidy(path)
            except OSError as error:
                raise Unavailable(f"{_NAME}: {self.after}: {path}: {words_of(error)}") from error
            del self.state[path]  # another file may come under its name

    def _tidy(self, path: str) -> None:
        store = self._objects()
        target = self.after.removeprefix("move:")
        if store is not None:
            if self.after == "delete":
                store.remove(path)
            else:
                tasks = self.context.component_tasks(self.context.this_component_id)
                store.move(path, target, pattern=self.path if len(tasks) > 1 else "")
        elif self.after == "delete":
            os.unlink(path)
        else:
            move_aside(path, target)

    def _is_aside(self, path: str) -> bool:
        """Return True if a file is one that was moved when it was done with."""
        _, _, target = self.after.partition("move:")
        if not target:
            return False
        if is_object(path):
            return path.split("/", 3)[3].startswith(f"{target.strip('/')}/")
        return path.startswith(os.path.join(os.path.abspath(target), ""))

    def _version_now(self, path: str) -> str | None:
        """Return the version of what has a name now; None if nothing has, or in mode "tail"."""
        store = self._objects()
        if store is not None:
            return store.version(path)
        found = look_at(path)
        return None if found is None or self.mode == "tail" else found.version

    @staticmethod
    def _is_over(entry: dict[str, Any]) -> bool:
        return bool(entry.get("done")) and not entry.get("open")


def _id_of(key: str, start: int, entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the message id of a record of what a file holds now."""
    cut = entry.get("cut", 0)
    return (key, start, cut) if cut else (key, start)


def _is_of_now(entry: Mapping[str, Any], cut: Sequence[int]) -> bool:
    """Return True if a message is of what a log holds now, and not of before it was truncated."""
    return bool((cut[0] if cut else 0) == entry.get("cut", 0))


def _is_same(entry: dict[str, Any], file: ListedFile) -> bool:
    """Return True if the content of a listed file is that of which an entry tells."""
    version = entry.get("version", file.version)  # an earlier topo has saved none
    if version == file.version or entry.get("done") or is_object(file.path):
        return bool(version == file.version)
    if entry["inode"] == file.inode:  # it may still be written
        return True
    # It may have come back with its disk, under another inode.
    return bool(version.partition(":")[2] == file.version.partition(":")[2])
