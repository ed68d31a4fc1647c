"""Answers to what Py4J asks about each argument of a call into the JVM, without importing pandas.

PySpark registers converters of numpy's numbers and arrays. The first question to one of them
imports PySpark's testing package, and with it pandas: half a second in the middle of each start,
and 40 MB that real-time mode never needs. The converters here give the same answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def avoid_pandas() -> None:
    """Let arguments be asked about without pandas; a converter that this Spark lacks is none."""
    from py4j import protocol  # type: ignore[import-untyped]
    from pyspark.sql import types

    known: list[Any] = protocol.INPUT_CONVERTER
    for name, test in (("NumpyScalarConverter", _is_number), ("NumpyArrayConverter", _is_array)):
        kind = getattr(types, name, None)
        for place, converter in enumerate(known):
            if type(converter) is kind:
                known[place] = _testing(kind, test)


def _testing(kind: type[Any], test: Callable[[Any, Any], bool]) -> Any:
    class Converter(kind):  # type: ignore[misc]
        """PySpark's converter, with another test for what it converts."""

        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")  # else nothing is of numpy
            return numpy is not None and test(numpy, obj)

    return Converter()


def _is_number(numpy: Any, obj: Any) -> bool:
    return isinstance(obj, numpy.generic)


def _is_array(numpy: Any, obj: Any) -> bool:
    return isinstance(obj, numpy.ndarray) and obj.ndim == 1
