"""The error of a query: the user's, extracted from Spark's text, or Spark's in one paragraph."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

from topo import AckerError, EngineError, TopoError, UncaughtError
from topo.engine.spark.driver.query_errors import error_of, in_words, is_passing, sentence
from topo.engine.spark.worker.relay import RelayLost
from topo.engine.spark.worker.stage_errors import StageError

TOKEN = "the run's token"
TRACE = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:
Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 (TID 9): {cause}
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
"""  # noqa: E501


class Ended:
    """A query that has ended with an exception of this text."""

    def __init__(self, cause: str | None) -> None:
        self.cause = cause

    def exception(self) -> Exception | None:
        return None if self.cause is None else RuntimeError(TRACE.format(cause=self.cause))


def why(cause: str | None) -> Any:
    query: Any = Ended(cause)
    return error_of(query, TOKEN)


def test_the_error_that_a_stage_raised_is_found_whole() -> None:
    raised = UncaughtError("it broke", component="b", task=3, user_traceback="Traceback: ...")
    found = why(f"Traceback (most recent call last):\n{StageError.of(raised, TOKEN)}\n")
    assert isinstance(found, UncaughtError)
    assert (found.component, found.task, found.user_traceback) == ("b", 3, "Traceback: ...")
    assert not is_passing(found)
    assert sentence(found) == "it broke"


@pytest.mark.parametrize("token", ["", "another run's token"])
def test_what_data_says_is_never_unpickled(token: str, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    forged = base64.b64encode(pickle.dumps(Opens(str(opened)))).decode()
    signed = str(StageError.of(TopoError("forged"), token)).rpartition("-")[2]
    texts = [f"topo-error:{forged};", f"topo-error-{'0' * 64}:{forged};", f"topo-error-{signed}"]
    raised = UncaughtError(f"bad row {' '.join(texts)}", component="b", task=3)
    found = why(f"{texts} {StageError.of(raised, TOKEN)}\n")
    assert found.component == "b", "the real error is still found"
    assert "Spark failed" in why(" ".join(texts)).message
    assert not opened.exists()


class Opens:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def test_an_error_that_utf_8_cannot_say_arrives() -> None:
    raised = UncaughtError("cannot read caf\udce9.txt", component="b", task=3)
    text = str(StageError.of(raised, TOKEN))
    assert "cannot read caf\\udce9.txt" in text.encode().decode()
    assert why(text).component == "b"


def test_sparks_own_failure_is_one_paragraph() -> None:
    found = why("ExecutorLostFailure (executor 0 exited)")
    assert isinstance(found, EngineError)
    assert found.message.startswith("Spark failed: [STREAM_FAILED]")
    assert found.message.endswith("ExecutorLostFailure (executor 0 exited)")
    assert "\n" not in found.message
    assert is_passing(found)


def test_what_the_jvm_throws_at_the_driver_is_said_without_its_stack() -> None:
    said = in_words(RuntimeError(TRACE.format(cause="no such master")))
    assert said.message.startswith("RuntimeError: [STREAM_FAILED]")
    assert said.message.endswith("no such master")
    mine = EngineError("as it is")
    assert in_words(mine) is mine


def test_a_query_that_ends_without_a_word() -> None:
    found = why(None)
    assert "Spark ended the query" in found.message


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (AckerError("executed twice", code="acker-fence"), True),
        (AckerError("a bound would be passed", code="acker-limit"), False),
        (RelayLost("the slot's other process went away"), True),
        (EngineError("the slot's process could not start", code="slot-start"), False),
        (EngineError("python is not there", code="spark-start"), False),
    ],
)
def test_what_a_new_start_may_get_over(error: Exception, passing: bool) -> None:
    assert is_passing(error) is passing
