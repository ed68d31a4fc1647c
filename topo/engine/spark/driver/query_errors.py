"""The error that ended a query, in the words of its cause, and the decision to restart it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from topo.engine.spark.driver.worker_check import in_words_of_workers
from topo.engine.spark.worker.relay import RelayLost
from topo.engine.spark.worker.spool import FramesLost
from topo.engine.spark.worker.stage_errors import STATE_REFUSED, StageError
from topo.errors import AckerError, EngineError, TopoError, Unavailable, sentence_of
from topo.tracking.client import can_restart

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_PASSING = ("spark", STATE_REFUSED, "slot-lost", "misaligned", "epoch-refused")
_CAUSE = re.compile(r"^Caused by: (.{1,300})", re.MULTILINE)
_HINTS = {
    "No space left on device": "free some space where the checkpoint and the temporary files are",
    "OutOfMemoryError": "save less at once, in keyed state instead of attributes, or set "
    "spark.driver.memory",
}
_CANNOT_START = "STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE"


def error_of(
    query: StreamingQuery, token: str, failures: Callable[[], Sequence[str]] = tuple
) -> Exception:
    """Return the error that ended a query: a stage's, or Spark's own text without its stack.

    `token` is the run's, with which its stages sign what they raise. `failures` returns the texts
    of all attempts that failed, the first first.
    """
    raised = query.exception()
    if raised is None:
        return EngineError("Spark ended the query", hint="its log says why")
    text = str(raised)
    found = _error_in(text, token)
    if _is_refusal(found):  # of another attempt, which does not say what the first one failed of
        before = (_error_in(each, token) for each in failures())
        return next((error for error in before if not _is_refusal(error)), found)
    return found


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, AckerError) and error.code == "acker-fence"


def _error_in(text: str, token: str) -> Exception:
    found = StageError.find_in(text, token)
    if found is not None:
        return found
    if (workers := in_words_of_workers(text)) is not None:
        return workers
    code = "spark-start" if _CANNOT_START in text else "spark"
    said, causes = _python_error(text) or _first_paragraph(text), _CAUSE.findall(text)
    if causes and causes[-1] not in said:
        said += f"; caused by {causes[-1]}"
    return EngineError(f"Spark failed: {said}", code=code, hint=_hint_for(text))


def with_cause(error: EngineError, cause: str) -> EngineError:
    """Return the error with what the JVM said of its cause."""
    if not cause:
        return error
    return EngineError(
        f"{error.message}; {cause}", at=error.at, hint=_hint_for(cause), code=error.code
    )


def _hint_for(text: str) -> str:
    return "; ".join(hint for words, hint in _HINTS.items() if words in text)


def _python_error(text: str) -> str:
    """Return the last line of a Python worker's traceback; "" if there is none."""
    _, start, trace = text.rpartition("Traceback (most recent call last):\n")
    lines = trace.partition("\n\tat ")[0].splitlines() if start else []
    telling = [line for line in lines if line.strip() and not line.startswith(" ")]
    return f"in a Python worker: {telling[-1][:600]}" if telling else ""


def in_words(error: Exception) -> TopoError:
    """Return the error to raise to the user; one from the JVM without its stack."""
    if isinstance(error, TopoError):
        return error
    said = _first_paragraph(str(error)) or "no reason was given"
    return EngineError(f"{type(error).__name__}: {said}", code="spark-start")


def _first_paragraph(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if line.strip().startswith(("at ", "===", "Driver stacktrace")) or not line.strip():
            break
        lines.append(line.strip())
    return " ".join(lines)[:600]


def is_passing(error: Exception) -> bool:
    """True iff restarting from the last commit may overcome the error."""
    if isinstance(error, Unavailable):
        return True
    if isinstance(error, AckerError):
        return can_restart(error)
    return isinstance(error, RelayLost | FramesLost) or getattr(error, "code", "") in _PASSING


def sentence(error: Exception) -> str:
    if isinstance(error, TopoError):
        return error.message
    return f"{type(error).__name__}: {sentence_of(error)}"
