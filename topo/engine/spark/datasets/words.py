"""The words in which Spark, or the JVM below it, says what went wrong with a source or a sink."""

from __future__ import annotations

from typing import Any

_NOT_FOUND = ("DATA_SOURCE_NOT_FOUND", "ClassNotFoundException")


def words_of(error: Exception) -> str:
    """Return one line of what an error says, of the JVM's the innermost that says something."""
    text = str(error)
    java: Any = getattr(error, "java_exception", None)
    while java is not None:
        text = str(java.getMessage() or "") or text
        java = java.getCause()
    return text.strip().partition("\n")[0]


def is_wrong(error: Exception) -> bool:
    """Return True if no other try will help: what was asked for is not there, or makes no sense."""
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(error, AnalysisException | ParseException):
        return True
    return any(name in str(error) for name in _NOT_FOUND)
