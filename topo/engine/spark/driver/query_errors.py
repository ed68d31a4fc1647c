"""The error that ended a query, in the words of its cause, and the decision to restart it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topo.engine.spark.driver.worker_check import in_words_of_workers
from topo.engine.spark.worker.relay import RelayLost
from topo.engine.spark.worker.spool import FramesLost
from topo.engine.spark.worker.stage_errors import StageError
from topo.errors import AckerError, EngineError, TopoError, Unavailable
from topo.tracking.client import can_restart

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_PASSING = ("spark", "slot-lost", "misaligned", "epoch-refused")
_CANNOT_START = "STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE"


def error_of(query: StreamingQuery, token: str) -> Exception:
    """Return the error that ended a query: a stage's, or Spark's own text without its stack.

    `token` is the run's, with which its stages sign what they raise.
    """
    raised = query.exception()
    if raised is None:
        return EngineError("Spark ended the query", hint="its log says why")
    text = str(raised)
    found = StageError.find_in(text, token)
    if found is not None:
        return found
    if (workers := in_words_of_workers(text)) is not None:
        return workers
    code = "spark-start" if _CANNOT_START in text else "spark"
    return EngineError(f"Spark failed: {_first_paragraph(text)}", code=code)


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
    return f"{type(error).__name__}: {error}"
