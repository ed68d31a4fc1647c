"""The Java that real-time mode runs inside Spark: its compilation, and its way to the executors.

Spark's real-time mode streams row by row between stages. Its Python workers would hold rows back by
milliseconds a stage, so the stages here are Java, and no more than pipes: a slot's process has a
unix socket for each level, through which the level's input comes in and its output goes out. The
source is the output of the spouts' level. All of it passes Spark's own check of what real-time mode
allows, which is why the sink is a `foreach` and not `noop`.

Spark compiles it with the compiler that it has for its own generated code (janino: no lambdas, and
casts where generics would be). Spark looks for a source by the name of its class, so the loader of
the class path is given the classes, by a method of its own that Spark's options of the JVM open;
executors get a jar. A directory on the class path, to which the classes would be written, needs
less code, but it has another name each time, and Java then refuses the archive of Spark's classes
(`jvm/class_archive.py`).
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local
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
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    jvm: Any = context._jvm
    try:
        loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
        if not _is_loaded(jvm, loader):
            classes = _compile(jvm)
            if not is_local(context.master):
                jsc: Any = context._jsc
                jsc.addJar(str(_write_jar(jvm, classes)))
            _define(context, loader, classes)
    except (Py4JError, TypeError) as error:  # the latter where Spark lacks the classes
        said = [line for line in str(error).splitlines() if "Exception" in line]
        raise EngineError(
            f"this Spark cannot run in real-time mode: {said[0].strip() if said else error}",
            code="real-time",
            hint=_INSTEAD,
        ) from error
    return jvm


def _is_loaded(jvm: Any, loader: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        jvm.java.lang.Class.forName(SOURCE_CLASS, False, loader)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "ClassNotFoundException":
            raise
        return False
    return True


def _compile(jvm: Any) -> dict[str, bytes]:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.setSourceVersion(8)
    compiler.cook(TASKS + SLOTS)
    compiled = compiler.getBytecodes()
    return {str(name): bytes(compiled[name]) for name in compiled}


def _define(context: SparkContext, loader: Any, classes: Mapping[str, bytes]) -> None:
    """Have the loader know the classes; the source last: its being there says that all are."""
    from py4j.protocol import Py4JJavaError

    gateway: Any = context._gateway
    java = gateway.jvm.java.lang
    named = [java.Class.forName(name) for name in ("java.lang.String", "[B")]
    kinds = _array(gateway, java.Class, [*named, java.Integer.TYPE, java.Integer.TYPE])
    of = java.Class.forName("java.lang.ClassLoader")
    method = of.getDeclaredMethod("defineClass", kinds)
    method.setAccessible(True)
    waiting = sorted(classes, key=lambda name: name == SOURCE_CLASS)
    tried = 0
    while waiting:
        name = waiting.pop(0)
        code = classes[name]
        try:
            method.invoke(loader, _array(gateway, java.Object, [name, code, 0, len(code)]))
            tried = 0
        except Py4JJavaError:
            tried += 1
            if tried > len(waiting):
                raise
            waiting.insert(len(waiting) - (SOURCE_CLASS in waiting), name)  # after what it extends


def _array(gateway: Any, kind: Any, values: Sequence[Any]) -> Any:
    array = gateway.new_array(kind, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def _write_jar(jvm: Any, classes: Mapping[str, bytes]) -> Path:
    """Write the classes into an archive, which is there as long as the JVM lives."""
    jar = Path(jvm.java.lang.System.getProperty("java.io.tmpdir")) / _JAR
    with zipfile.ZipFile(jar, "w") as archive:
        for name, code in classes.items():
            archive.writestr(f"{name.replace('.', '/')}.class", code)
    return jar
