"""The classes of topo's own inside Spark's JVM: a jar, which `.ci/jar` builds from `java/`.

Spark looks for some of them by their names. So the loader of the class path is given them, by a
method of its own that Spark's options of the JVM open. That takes 1 ms a class, and works in a
Spark that somebody else has started. With the jar on the class path, the archive of Spark's classes
(`class_archive`) would be of this jar alone, and a Spark that runs already could not have them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

JAR = Path(__file__).with_name("topo.jar")
_PACKAGE = "topo."
_SUFFIX = ".class"


def load(context: SparkContext, *names: str) -> Any:
    """Have the JVM know some classes, with those nested in them; return the package they are in.

    The last one comes last: if it is known, all are. Raises a Py4JError or TypeError if this JVM
    does not take them.
    """
    jvm: Any = context._jvm
    if not _is_defined(jvm, names[-1]):
        _define(context, dict(_read(names)), names[-1])
    return jvm.topo


def _read(names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield classes and those nested in them: the name that Java has for each, and its code."""
    with zipfile.ZipFile(JAR) as jar:
        for entry in jar.namelist():
            name = entry.removesuffix(_SUFFIX).replace("/", ".")
            if entry.endswith(_SUFFIX) and name.removeprefix(_PACKAGE).partition("$")[0] in names:
                yield name, jar.read(entry)


def _is_defined(jvm: Any, name: str) -> bool:
    """Return True if the loader of the class path knows a class."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    try:
        jvm.java.lang.Class.forName(_PACKAGE + name, False, loader)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "ClassNotFoundException":
            raise
        return False
    return True


def _define(context: SparkContext, classes: dict[str, bytes], main: str) -> None:
    from py4j.protocol import Py4JJavaError

    gateway: Any = context._gateway
    java = gateway.jvm.java.lang
    loader = java.ClassLoader.getSystemClassLoader()
    parameters = [java.Class.forName(name) for name in ("java.lang.String", "[B")]
    kinds = _array(gateway, java.Class, [*parameters, java.Integer.TYPE, java.Integer.TYPE])
    method = java.Class.forName("java.lang.ClassLoader").getDeclaredMethod("defineClass", kinds)
    method.setAccessible(True)

    def define(name: str) -> None:
        code = classes[name]
        values = [name, code, 0, len(code)]
        method.invoke(loader, _array(gateway, gateway.jvm.java.lang.Object, values))

    waiting = [name for name in classes if name != _PACKAGE + main]
    refused = 0
    while waiting:
        name = waiting.pop(0)
        try:
            define(name)
            refused = 0
        except Py4JJavaError:  # its parent may be one of those that wait
            refused += 1
            if refused > len(waiting):
                raise
            waiting.append(name)
    define(_PACKAGE + main)


def _array(gateway: Any, kind: Any, values: Sequence[Any]) -> Any:
    array = gateway.new_array(kind, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array
