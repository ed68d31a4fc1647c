"""The handling of exceptions that leave the user's code."""

from __future__ import annotations

import copy
import re
import signal
import threading
import traceback
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import Any

from topo.errors import (
    FailTuple,
    TopoError,
    Unavailable,
    UncaughtError,
    sentence_of,
    shown,
    text_of,
)
from topo.metrics.counters import ErrorReport
from topo.traces import is_librarys, is_topos
from topo.tuples import Tuple
from topo.wire.column import dump, load


def uncaught(
    error: BaseException, owner: str, component: str, task: int, tup: Tuple | str | None
) -> UncaughtError:
    """Return the error to stop with; it is an instance of the original's class as well.

    `tup` is the tuple that was being processed, or a description.
    """
    if not is_of_user_code(error):
        raise error
    if isinstance(error, UncaughtError):  # of a grouping, in an emit that asked for the task ids
        return copy.copy(error)
    text = described(tup) if isinstance(tup, Tuple) else tup or ""
    place = f"{owner} task {task}" + (f", {text}" if text else "")
    made = _made(
        _class_for(type(error)),
        f"{place}: {type(error).__name__}: {sentence_of(error)}",
        component=component,
        task=task,
        user_traceback=users_traceback(error),
        tuple_text=text,
        at=users_line(error),
        hint=error.hint if isinstance(error, TopoError) else _hint_for(error),
    )
    if isinstance(error, Unavailable):
        made.__dict__["after_secs"] = error.after_secs
    return made


_PARAMETERS = {
    "tup_id": "the id of a message is msg_id= here; topo.streamparse.Spout takes tup_id=",
    "anchors": "a BasicBolt anchors by itself; subclass topo.Bolt to pass anchors=",
    "need_task_ids": "it is task_ids=True here",
    "direct_task": "write self.emit_direct(task, values)",
}


def _hint_for(error: BaseException) -> str:
    """Return a hint for a call that is written as streamparse has it."""
    if not isinstance(error, TypeError):
        return ""
    found = re.search(r"unexpected keyword argument '(\w+)'", sentence_of(error))
    return _PARAMETERS.get(found[1], "") if found else ""


def is_of_user_code(error: BaseException) -> bool:
    """Return False for what is not to be taken for a failure of the code it came out of.

    Ctrl-C is not, nor is what a test's runner raises to skip a test, to end or to time it out.
    Anything else is, derived from Exception or not: a cancelled task, a panic of an extension.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, KeyboardInterrupt):
        return not _may_be_interrupted()
    return type(error).__module__.partition(".")[0] not in ("_pytest", "hypothesis")


def _may_be_interrupted() -> bool:
    """True iff Ctrl-C raises in this thread; neither a slot's nor the inline engine's own is it."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and handler not in (signal.SIG_IGN, signal.SIG_DFL)


def report(error: BaseException | str, component: str, task: int, kind: str) -> ErrorReport:
    """Return the error as `topo errors` shows it."""
    if not isinstance(error, BaseException):  # a text, or what has one
        return ErrorReport(component, task, kind, "", text_of(error))
    return ErrorReport(
        component,
        task,
        kind,
        type(error).__name__,
        sentence_of(error),
        users_line(error),
        users_traceback(error),
    )


def report_of(error: UncaughtError) -> ErrorReport:
    """Return the error that ended a run as `topo errors` shows it."""
    name = error.__class__.__name__
    return ErrorReport(
        error.component,
        error.task,
        "uncaught",
        name,
        error.message.partition(f"{name}: ")[2] or error.message,
        error.at,
        error.user_traceback,
    )


def failure_reason(failure: FailTuple) -> str | None:
    return failure.reason or None


def described(tup: Tuple) -> str:
    """Describe a tuple for an error: "tuple ['cow'] of 'split'"."""
    return f"tuple {shown(tup.values, 200)} of {tup.source_component!r}"


def users_traceback(error: BaseException) -> str:
    """Return the traceback without topo's own frames."""
    if not _has_others(error):
        lines = traceback.format_exception_only(error)
        return "".join([_stack(error.__traceback__).text, *lines])
    summary = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = summary
    while part is not None:
        own = [frame for frame in part.stack if not is_topos(frame.filename)]
        part.stack = traceback.StackSummary.from_list(own)
        part = part.__cause__ or part.__context__
    return "".join(summary.format())


def users_line(error: BaseException) -> str:
    """Return the place in the user's code that raised the error, or called what did: "sink.py:31".

    A line of a library is returned only if the user has none in the traceback, nor the operator
    that ran a library's function, such as `map(json.loads)`, a place.
    """
    line = _stack(error.__traceback__).line
    if is_librarys(line):
        for note in reversed(getattr(error, "__notes__", ())):
            if place := re.fullmatch(r"in .* at (\S+:\d+)", str(note)):
                return place[1]
    return line


def _has_others(error: BaseException) -> bool:
    """True iff other errors are shown with this one."""
    related = (error.__cause__, error.__context__)
    return isinstance(error, BaseExceptionGroup) or any(other is not None for other in related)


@dataclass(frozen=True)
class _Stack:
    """The user's part of a traceback, as text, and its last line."""

    text: str
    line: str


_stacks: dict[tuple[tuple[str, CodeType, int], ...], _Stack] = {}
_MOST_STACKS = 256


def _stack(trace: TracebackType | None) -> _Stack:
    """Format a traceback, once for each call path: every tuple of a batch may fail there."""
    way = []
    part = trace
    while part is not None:
        code = part.tb_frame.f_code
        way.append((code.co_filename, code, part.tb_lasti))  # equal code in two files is equal
        part = part.tb_next
    found = _stacks.get(key := tuple(way))
    if found is None:
        own = [frame for frame in traceback.extract_tb(trace) if not is_topos(frame.filename)]
        lines = traceback.StackSummary.from_list(own).format()
        text = "".join(["Traceback (most recent call last):\n" if trace else "", *lines])
        last = [frame for frame in own if not is_librarys(frame.filename)][-1:] or own[-1:]
        found = _Stack(text, "".join(f"{frame.filename}:{frame.lineno}" for frame in last))
        if len(_stacks) >= _MOST_STACKS:
            _stacks.clear()
        _stacks[key] = found
    return found


def _class_for(original: type[BaseException]) -> type[UncaughtError]:
    """Return a subclass of UncaughtError and the user's class, so that either can be caught."""
    if not issubclass(original, Exception) or issubclass(original, UncaughtError):
        return UncaughtError
    if issubclass(original, StopIteration | StopAsyncIteration):
        return UncaughtError  # or a generator that it passes would take it for its end
    body = {"__module__": original.__module__, "__reduce__": _reduced, "_original": original}
    try:
        combined: Any = type(original.__name__, (UncaughtError, original), body)
        _made(combined, "", component="", task=0)
    except Exception:  # a class that cannot be combined
        return UncaughtError
    made: type[UncaughtError] = combined
    return made


def _made(kind: type[UncaughtError], message: str, **named: Any) -> UncaughtError:
    error = kind.__new__(kind)
    UncaughtError.__init__(error, message, **named)
    return error


def _reduced(error: Any) -> tuple[object, ...]:
    """Pickle as nested bytes: the error may pass processes without the user's modules."""
    plain = _plain(error)
    others = {name: value for name, value in vars(error).items() if name not in plain}
    return (_again, (dump((error._original, error.args, others)), plain))


def _plain(error: UncaughtError) -> dict[str, Any]:
    """Return the attributes of every UncaughtError, which any process can unpickle."""
    names = {*vars(_made(UncaughtError, "", component="", task=0)), "lines"}
    return {name: value for name, value in vars(error).items() if name in names}


def _again(packed: bytes, plain: dict[str, Any]) -> UncaughtError:
    try:
        original, args, others = load(packed)
        error = _made(_class_for(original), "", component="", task=0)
        error.args = args
        error.__dict__.update(others)
    except Exception:
        error = _made(_Packed, "", component="", task=0)
        error.__dict__["packed"] = packed
    error.__dict__.update(plain)
    return error


class _Packed(UncaughtError):
    """A pickled error whose class is unknown in this process, but may be known elsewhere."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_again, (self.__dict__["packed"], _plain(self)))


_Packed.__name__ = _Packed.__qualname__ = UncaughtError.__name__  # as tracebacks call it
_Packed.__module__ = UncaughtError.__module__
