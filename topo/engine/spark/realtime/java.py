"""The Java that real-time mode runs inside Spark, and its way to the executors.

Spark's real-time mode streams row by row between stages. Its Python workers would hold rows back by
milliseconds a stage, so the stages here are Java, and no more than pipes: a slot's process has a
unix socket for each level, through which the level's input comes in and its output goes out. The
source is the output of the spouts' level. All of it passes Spark's own check of what real-time mode
allows, which is why the sink is a `foreach` and not `noop`.

`jvm/classes.py` says how it gets there; executors of a cluster get the jar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local
from topo.engine.spark.jvm.classes import JAR, load
from topo.errors import EngineError

if TYPE_CHECKING:
    from pyspark import SparkContext

SOURCE_CLASS = "topo.Spouts"
_CLASSES = ("Pipe", "Relay", "Sink", "Slot", "Spouts")
_SINCE = (4, 3)
_INSTEAD = "real-time mode needs Spark 4.3 or later; else set topology.mode=micro-batch"


def check_spark(version: str) -> None:
    """Raise an EngineError if this version of Spark has no real-time mode that is enough."""
    numbers = version.split(".")[:2]
    if all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) < _SINCE:
        raise EngineError(
            f"Spark {version} cannot run in real-time mode", code="real-time", hint=_INSTEAD
        )


def load_classes(context: SparkContext) -> Any:
    """Load the classes into this Spark, unless it has them; return their package."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        if not is_local(context.master):
            jsc: Any = context._jsc
            jsc.addJar(str(JAR))  # again is not twice
        return load(context, *_CLASSES)
    except (Py4JError, TypeError) as error:  # the latter where Spark lacks the classes
        reasons = [line for line in str(error).splitlines() if "Exception" in line]
        raise EngineError(
            f"this Spark cannot run in real-time mode: {reasons[0].strip() if reasons else error}",
            code="real-time",
            hint=_INSTEAD,
        ) from error
