"""Every error topo raises, in one tree.

    TopoError
    ├── ConfigError                 a setting: unknown, misspelt, of the wrong type (ValueError)
    │   ├── UnknownSettingError     ... as an attribute of a Config (AttributeError)
    │   ├── WindowError             a window, trigger or event time that cannot be
    │   ├── LearnError              a model that cannot learn, or cannot learn from an example
    │   ├── RuleError               a rule, a subscription or a file of rules that cannot be
    │   ├── JoinError               a join that cannot be, or a key that cannot be joined by
    │   ├── PatternError            a pattern that cannot be: two parts of one name, no end
    │   └── ConditionError          a condition that is not allowed, or that raised on an event
    ├── TargetError                 what `topo` was told to build: not there, or its code raised
    ├── InvalidTopologyError        every structural problem of a topology, at once (ValueError)
    ├── ComponentError              a component is written in a way topo cannot run (TypeError)
    ├── UnpicklableComponentError   a component that cannot travel
    ├── UnsavableAttributeError     an attribute that cannot be saved
    ├── StatelessError              a component that says it keeps nothing kept something
    ├── EmitError                   an emit that does not fit what was declared (ValueError)
    │   └── EmitTypeError           ... whose values are no list or tuple (TypeError)
    ├── ColumnError                 a column of a batch that has no Arrow type (TypeError)
    ├── TimestampError              a value in a time field that is no time (ValueError)
    ├── AnchorError                 an anchor, ack or fail of something that is no input (TypeError)
    ├── TupleSettledError           a second ack or fail, or an anchor after one
    ├── UnknownField                a field a tuple does not have
    │   ├── UnknownFieldKey, UnknownFieldAttribute, UnknownFieldIndex
    ├── UncaughtError               an exception that left the user's code
    ├── Unavailable                 something outside is out of reach; tried again, never FAILED
    ├── ShellError                  a component's process: ended, hung, or wrote no message
    ├── MissingExtra                a package that a component requires is not installed
    ├── RunError                    a run in the wrong status for what was asked of it
    ├── AckerError                  the acker: out of reach, or it refused
    ├── CheckpointError             a checkpoint that does not belong to this topology
    └── EngineError                 Spark or Java: missing, too old, or failed by itself

`FailTuple` is not an error: it is how a basic bolt says that its input fails.

Every TopoError carries, beside its sentence, a `code` a program can test, `at` (the place: a file
and line, a flag, a component) and a `hint` (what to do), each "" where there is none.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


class TopoError(Exception):
    """The base of everything topo raises on purpose."""

    code = "error"
    # A class of the user's may leave these out.
    message = ""
    at = ""
    hint = ""

    def __init__(self, message: str, *, at: str = "", hint: str = "", code: str = "") -> None:
        # Not super(): an UncaughtError is an instance of the user's class too, whatever that takes.
        Exception.__init__(self, message)
        self.message = message
        self.at = at
        self.hint = hint
        if code:
            self.code = code

    def __str__(self) -> str:
        text = self.message
        if self.at:
            text += f" (at {self.at})"
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.__dict__.copy(), self.args))


def _rebuild(
    cls: type[TopoError], attributes: dict[str, object], args: tuple[object, ...]
) -> TopoError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


class ConfigError(TopoError, ValueError):
    """A setting that topo cannot accept."""

    code = "config"


class UnknownSettingError(ConfigError, AttributeError):
    """`conf.wrkers`: an attribute that is no setting."""


class WindowError(ConfigError):
    """A window, a trigger or an event time that cannot be: of no length, or of a wrong type."""

    code = "window"


class LearnError(ConfigError):
    """A model that cannot learn, or that cannot learn from an example."""

    code = "learn"


class RuleError(ConfigError):
    """A rule, a subscription or a file of rules that cannot be, or that cannot take an event."""

    code = "rule"


class JoinError(ConfigError):
    """A join that cannot be: an input that it does not know, or a key that is no key."""

    code = "join"


class ConditionError(ConfigError):
    """A condition that is not allowed, names a field that is not there, or raised on an event."""

    code = "condition"


class PatternError(ConfigError):
    """A pattern that cannot be; the code says what: "pattern-name", "pattern-negation", ..."""

    code = "pattern"


class StreamError(ConfigError):
    """A program of streams that cannot be, or an element that an operator cannot take."""

    code = "stream"


class TimestampError(TopoError, ValueError):
    """A value in a time field that is no time: None, a string, NaN, a naive datetime."""

    code = "timestamp"


class TargetError(TopoError):
    """A target (`PATH.py[:ATTR]`) that is not there, is no topology, or whose code raised.

    Also what a cluster was given to run that is no topology.
    """

    code = "target"

    def __init__(
        self, message: str, *, at: str = "", hint: str = "", user_traceback: str = ""
    ) -> None:
        super().__init__(message, at=at, hint=hint)
        self.user_traceback = user_traceback


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a topology: what kind, where, a sentence, and what to do."""

    code: str
    where: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InvalidTopologyError(TopoError, ValueError):
    """All structural problems of a topology; `problems` lists them."""

    code = "invalid-topology"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        count = len(self.problems)
        head = (
            "the topology has a problem:" if count == 1 else f"the topology has {count} problems:"
        )
        super().__init__("\n  ".join([head, *map(str, self.problems)]))


class ComponentError(TopoError, TypeError):
    """A component written in a way that topo cannot run."""

    code = "component"


class UnpicklableComponentError(TopoError):
    """A component that does not pickle, so cannot be sent to where it runs."""

    code = "unpicklable"


class UnsavableAttributeError(TopoError):
    """An attribute of a component that has to be saved and cannot be."""

    code = "unsavable"


class StatelessError(TopoError):
    """A component that declares `stateless = True` and changed an attribute."""

    code = "stateless"


class EmitError(TopoError, ValueError):
    """An emit that does not fit what the component declared."""

    code = "emit"


class EmitTypeError(EmitError, TypeError):
    """Emitted values that are not a list or a tuple."""


class ColumnError(TopoError, TypeError):
    """A column of values that Arrow has no type for, read by a bolt with `process_batch`."""

    code = "column"


class AnchorError(TopoError, TypeError):
    """Something that is not an input tuple of this component was anchored to, acked or failed."""

    code = "anchor"


class TupleSettledError(TopoError):
    """A tuple was acked or failed a second time, or anchored to afterwards."""

    code = "settled"


class UnknownField(TopoError):
    """A tuple was asked for a field it does not have."""

    code = "unknown-field"


class UnknownFieldKey(UnknownField, KeyError):
    """`tup["nme"]`, or `tup.select(...)`."""


class UnknownFieldAttribute(UnknownField, AttributeError):
    """`tup.nme`."""


class UnknownFieldIndex(UnknownField, IndexError):
    """`tup[7]` of a tuple with two fields."""


class UncaughtError(TopoError):
    """An exception left the user's code; `user_traceback` is theirs, and comes first."""

    code = "uncaught"

    def __init__(
        self,
        message: str,
        *,
        component: str,
        task: int,
        user_traceback: str = "",
        tuple_text: str = "",
        at: str = "",
        hint: str = "",
    ) -> None:
        TopoError.__init__(self, message, at=at, hint=hint)
        self.component = component
        self.task = task
        self.user_traceback = user_traceback
        self.tuple_text = tuple_text

    def __str__(self) -> str:
        return f"{self.user_traceback.rstrip()}\n\n{super().__str__()}".lstrip()


class Unavailable(TopoError):
    """Something outside is out of reach for now: a database restarts, a broker does not answer.

    Raised in `next_tuple` it means: nothing to emit yet, ask again after a pause. Raised in any
    other hook it rolls the batch back, which then runs again. The topology is STALLED for
    `reason` meanwhile.
    """

    code = "unavailable"
    after_secs: float | None = None
    """When to try again at the earliest; None: soon, then ever later."""

    def __init__(self, reason: str, after_secs: float | None = None) -> None:
        TopoError.__init__(self, reason)
        self.after_secs = after_secs


class ShellError(TopoError):
    """A process of a component in another language ended, hung, or wrote what is no message."""

    code = "shell"


class MissingExtra(TopoError):
    """A package that a component requires is not installed, or is too old."""

    code = "missing-extra"


class RunError(TopoError):
    """A run that is in the wrong status for what was asked of it."""

    code = "run"


class AckerError(TopoError):
    """The acker is out of reach, or refused a call."""

    code = "acker"


class CheckpointError(TopoError):
    """A checkpoint that does not belong to this topology or plan."""

    code = "checkpoint"


class EngineError(TopoError):
    """Spark or Java is missing, too old, or failed by itself."""

    code = "engine"


class FailTuple(Exception):
    """Raised in a basic bolt: the input tuple fails with this reason, and the run goes on.

    In `process_batch`, `rows` are the positions of the inputs that fail; without them all do.
    """

    reason = ""
    report = False
    rows: Any = None

    def __init__(self, reason: str = "", *, report: bool = False, rows: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.report = report
        self.rows = rows


def nearest(name: object, known: Iterable[str]) -> str:
    """The known name that `name` was probably meant to be, or ""; "" for what is no str."""
    if not isinstance(name, str):
        return ""
    candidates = list(known)
    lowered = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    return lowered[found[0]] if found else ""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The hint for a misspelt name: "did you mean 'x'?", or ""."""
    match = nearest(name, known)
    return f"did you mean {match!r}?" if match else ""


def shown(value: object, most: int = 80) -> str:
    """Return the value as an error shows it: cut, and whatever its repr does."""
    text = _safely(repr, value)
    if text is None and isinstance(value, list | tuple):
        text = f"[{', '.join(shown(part, most) for part in value)}]"
    if text is None:
        text = f"<a {type(value).__name__}, which cannot be shown>"
    return text if len(text) <= most else text[: most - 3] + "..."


def unhashable_key(keys: Iterable[object]) -> tuple[str, str] | None:
    """Return the first of these keys that cannot be one, as shown, and its type with an article."""
    for key in keys:
        try:
            hash(key)
        except TypeError:
            kind = type(key).__name__
            article = "an" if kind[0] in "aeiou" else "a"
            return shown(key), f"{article} {kind}"
    return None


KEY_HINT = "a key is a str, a number or a tuple of them, or another value that does not change"


def sentence_of(error: BaseException) -> str:
    """Return what an error says, without topo's hint, whatever its `str` does."""
    message = error.message if isinstance(error, TopoError) else None
    text = encodable(message) if isinstance(message, str) else _safely(str, error)
    return f"(its text cannot be shown: {shown(error.args)})" if text is None else text


def text_of(value: object) -> str:
    """Return `str(value)` as every place can store it, whatever the value's `str` does."""
    text = _safely(str, value)
    return shown(value) if text is None else text


def words_of(error: Exception) -> str:
    """Return why the system refused something, in its words: "no such file or directory"."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def ending_of(code: int) -> str:
    """Return how a process ended, by its return code: "was ended by SIGKILL"."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        name = f"signal {-code}"
    return f"was ended by {name}"


def _safely(describe: Callable[[object], str], value: object) -> str | None:
    try:
        return encodable(describe(value))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def encodable(text: str) -> str:
    """Return the text without lone surrogates, which file names of another encoding bring."""
    return text.encode("utf-8", "backslashreplace").decode()


_C0_AND_C1 = (*range(32), *range(127, 160))
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the direction of what follows: a text may be shown as another."""
_SPELT_OUT = {code: f"\\x{code:02x}" for code in _C0_AND_C1 if chr(code) not in "\n\t"} | {
    code: f"\\u{code:04x}" for code in _BIDI
}


def printable(text: str) -> str:
    """Return the text with control characters spelt out: data must not command a terminal."""
    return encodable(text).translate(_SPELT_OUT)


_SPELT_OUT_IN_JSON = {code: f"\\u{code:04x}" for code in (*_C0_AND_C1[32:], *_BIDI)}


def printable_json(text: str) -> str:
    """Return a JSON text with control characters as its escapes; those below 32 are already."""
    return encodable(text).translate(_SPELT_OUT_IN_JSON)
