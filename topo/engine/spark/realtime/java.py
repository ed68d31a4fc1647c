"""The Java that real-time mode runs inside Spark: its compilation, and its way to the executors.

Spark's real-time mode streams row by row between stages. Its Python workers would hold rows back by
milliseconds a stage, so the stages here are Java, and no more than pipes: a slot's process has a
unix socket for each level, through which the level's input comes in and its output goes out. The
source is the output of the spouts' level. All of it passes Spark's own check of what real-time mode
allows, which is why the sink is a `foreach` and not `noop`.

Spark compiles it with the compiler that it has for its own generated code (janino: no lambdas, and
casts where generics would be). The classes go to a directory that has been on the class path since
the JVM was started, for that is where Spark looks for a source by its name; executors get a jar.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local
from topo.engine.spark.jvm.classes import CLASSES_SETTING
from topo.engine.spark.realtime.java_slots import SLOTS
from topo.engine.spark.realtime.java_tasks import TASKS
from topo.errors import EngineError

if TYPE_CHECKING:
    from pyspark import SparkContext

SOURCE_CLASS = "TopoSource"
_JAR = "topo-real-time.jar"
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
    """Compile the classes into this Spark, unless it has them; return its JVM."""
    jvm: Any = context._jvm
    path = context.getConf().get(CLASSES_SETTING, "")
    if not path:
        raise EngineError(
            "this process's Spark was not started by topo, so it cannot run in real-time mode",
            code="real-time",
            hint="let topo start Spark, or set topology.mode=micro-batch",
        )
    directory = Path(path)
    directory.mkdir(exist_ok=True)
    if not (directory / f"{SOURCE_CLASS}.class").exists():
        _compile(jvm, directory)
        if not is_local(context.master):
            jsc: Any = context._jsc
            jsc.addJar(str(_jar_of(directory)))
    return jvm


def _compile(jvm: Any, directory: Path) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setTargetVersion(8)
        compiler.setSourceVersion(8)
        compiler.cook(TASKS + SLOTS)
        classes = dict(compiler.getBytecodes())
    except (Py4JError, TypeError) as error:  # the latter where Spark lacks the classes
        said = [line for line in str(error).splitlines() if "Exception" in line]
        raise EngineError(
            f"this Spark cannot run in real-time mode: {said[0].strip() if said else error}",
            code="real-time",
            hint=_INSTEAD,
        ) from error
    # The source last: its being there says that all are.
    for name in sorted(classes, key=lambda name: name == SOURCE_CLASS):
        unfinished = directory / f"{name}.tmp"
        unfinished.write_bytes(bytes(classes[name]))
        unfinished.rename(directory / f"{name}.class")


def _jar_of(directory: Path) -> Path:
    """Return the classes as an archive, which lies beside them as long as the JVM lives."""
    jar = directory.parent / _JAR
    with zipfile.ZipFile(jar, "w") as archive:
        for file in sorted(directory.glob("*.class")):
            archive.write(file, file.name)
    return jar
