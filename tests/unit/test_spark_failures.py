"""The error of a query: the user's, extracted from Spark's text, or Spark's in one paragraph."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

from topo import AckerError, EngineError, TopoError, UncaughtError
from topo.engine.spark.driver.jvm_death import Jvm
from topo.engine.spark.driver.query_errors import (
    error_of,
    in_words,
    is_passing,
    sentence,
    with_cause,
)
from topo.engine.spark.worker.relay import RelayLost
from topo.engine.spark.worker.stage_errors import STATE_REFUSED, StageError

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


REFUSED = "slot 0 of level 1 was executed twice in batch 3"


def fence() -> str:
    return str(StageError.of(AckerError(REFUSED, code="acker-fence"), TOKEN))


def test_attempts_that_are_refused_do_not_hide_how_the_first_one_failed() -> None:
    query: Any = Ended(fence())
    lost = StageError.of(RelayLost("the slot's process was ended by SIGKILL"), TOKEN)
    assert sentence(error_of(query, TOKEN, lambda: [str(lost), fence()])) == lost_sentence(lost)
    disk = TRACE.format(cause="java.lang.RuntimeException: task failed") + (
        "Caused by: java.io.IOException: No space left on device\n\tat java.io.File\n"
    )
    found: Any = error_of(query, TOKEN, lambda: [fence(), disk, fence()])
    assert found.message.endswith("caused by java.io.IOException: No space left on device")
    assert "free some space" in found.hint
    for nothing in ([], [fence()]):
        assert sentence(error_of(query, TOKEN, lambda said=nothing: said)) == REFUSED  # type: ignore[misc]


def lost_sentence(lost: StageError) -> str:
    found = StageError.find_in(str(lost), TOKEN)
    assert isinstance(found, RelayLost)
    return found.message


def test_of_a_python_worker_the_last_line_is_told() -> None:
    text = 'Traceback (most recent call last):\n  File "worker.py", line 1\n    x\nEOFError: gone\n'
    assert why(text).message == "Spark failed: in a Python worker: EOFError: gone"


def test_what_ended_the_thread_that_takes_state_is_read_from_sparks_log(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    thread = 'Exception in thread "stateConnectionListenerThread" '
    log.write_text(f"{thread}before\n\tat x\n{thread}java.lang.OutOfMemoryError: Java heap space\n")
    jvm = Jvm.__new__(Jvm)
    jvm._log = str(log)
    said = jvm.state_failure()
    assert said == "java.lang.OutOfMemoryError: Java heap space"
    error = with_cause(EngineError("Spark did not take it", code=STATE_REFUSED), said)
    assert error.message == f"Spark did not take it; {said}"
    assert "spark.driver.memory" in error.hint
    assert is_passing(error)
    jvm._log = str(tmp_path / "none")
    assert jvm.state_failure() == ""
