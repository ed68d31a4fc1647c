"""The death of Spark's JVM during a run: its detection, its error, and a new JVM for later runs.

pyspark keeps the context of a dead JVM as the context of its process, and reports of every call
that the connection was refused.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from topo.errors import EngineError

if TYPE_CHECKING:
    from pyspark import SparkContext

_DYING_SECS = 2.0
_LOG_TAIL_BYTES = 1 << 20
# Python only sees a connection that is closed.
_STATE_THREAD = re.compile(r'^Exception in thread "stateConnectionListenerThread" (.{1,300})', re.M)
_dropping = threading.Lock()


class Jvm:
    """The JVM of a Spark context."""

    def __init__(self, context: SparkContext) -> None:
        self._context: Any = context
        self._gateway: Any = self._context._gateway
        self._process: subprocess.Popen[bytes] | None = getattr(self._gateway, "proc", None)
        self._log = _output_of(self._process.pid) if self._process else ""

    def death_behind(self, error: Exception) -> EngineError | None:
        """Return the error to report instead if the JVM's death caused this one, else None."""
        if not _breaks_off(error) or not self._is_dead(_DYING_SECS):
            return None
        return EngineError(
            f"Spark's JVM has died{self._how}" + (f"; its log: {self._log}" if self._log else ""),
            code="spark-died",
            hint="run it again, in this process too: it gets a new Spark",
        )

    def state_failure(self) -> str:
        """Return what ended the JVM's last thread that took state from Python; "" if unknown."""
        with suppress(OSError), open(self._log, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log) - _LOG_TAIL_BYTES))
            found = _STATE_THREAD.findall(log.read().decode(errors="replace"))
            return found[-1].strip() if found else ""
        return ""

    def drop_if_dead(self) -> None:
        """Let this process start another Spark if this JVM is dead."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        with _dropping:
            if SparkContext._active_spark_context is not self._context or not self._is_dead():
                return
            self._context._jsc = None  # or it would be asked to stop
            with suppress(Exception):
                self._context.stop()
            with suppress(Exception):
                self._gateway.close()
            SparkContext._active_spark_context = None
            SparkContext._gateway = SparkContext._jvm = None
            SparkSession._instantiatedSession = SparkSession._activeSession = None

    def _is_dead(self, patience_secs: float = 0.0) -> bool:
        """Return True if it is dead; a connection breaks a moment before its process has ended."""
        if self._process is None:  # somebody else started it
            return not _listens(self._gateway.gateway_parameters)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_secs)
        return self._process.returncode is not None

    @property
    def _how(self) -> str:
        code = self._process.returncode if self._process else None
        if code is None:
            return ""
        return f" (signal {-code})" if code < 0 else f" (exit code {code})"


def drop_dead_spark() -> None:
    """Let this process start another Spark if its present JVM is dead."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        Jvm(context).drop_if_dead()


def _breaks_off(error: Exception) -> bool:
    """True iff the error may come from a connection to a dead JVM."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    return isinstance(error, OSError | Py4JError) and not isinstance(error, Py4JJavaError)


def _output_of(process: int) -> str:
    """Return the file that a process writes to, or "" if that is unknown."""
    with suppress(OSError):
        path = os.readlink(f"/proc/{process}/fd/1")
        return path if os.path.isfile(path) else ""
    return ""


def _listens(parameters: Any) -> bool:
    with suppress(OSError), socket.create_connection((parameters.address, parameters.port), 1.0):
        return True
    return False
