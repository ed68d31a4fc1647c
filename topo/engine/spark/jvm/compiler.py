"""The Java of topo's own inside Spark's JVM: its compilation, its cache, and its place.

Spark compiles it with the compiler that it has for its own generated code (janino: no lambdas, and
casts where generics would be). In a JVM that has just started that takes up to a second, so the
user's cache keeps the classes. It is a directory that nobody else writes to, as for the archive of
Spark's classes (`class_archive`).

Spark looks for some classes by their names. So the loader of the class path is given them all, by a
method of its own that Spark's options of the JVM open. A directory on the class path, to which they
would be written, needs less code, but it has another name in each run, and Java then refuses the
archive of Spark's classes.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.engine.spark.jvm.class_archive import cache_directory

if TYPE_CHECKING:
    from pyspark import SparkContext

_SUFFIX = ".class"


def compile_classes(context: SparkContext, source: str) -> dict[str, bytes]:
    """Return the classes of a source by name; raise a Py4JError or TypeError if Spark cannot."""
    kept = _cache_file(context, source)
    if kept is not None:
        with suppress(OSError, zipfile.BadZipFile):  # it is not there yet, or is damaged
            return _read(kept)
    jvm: Any = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.setSourceVersion(8)
    compiler.cook(source)
    compiled = compiler.getBytecodes()
    classes = {str(name): bytes(compiled[name]) for name in compiled}
    if kept is not None:
        draft = kept.with_suffix(f".{secrets.token_hex(4)}.tmp")
        with suppress(OSError):
            write_jar(draft, classes)
            draft.rename(kept)
    return classes


def write_jar(path: Path, classes: Mapping[str, bytes]) -> None:
    """Write classes as Java takes them."""
    with zipfile.ZipFile(path, "w") as jar:
        for name, code in classes.items():
            jar.writestr(f"{name.replace('.', '/')}{_SUFFIX}", code)


def is_defined(context: SparkContext, name: str) -> bool:
    """Return True if the loader of the class path knows a class."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm: Any = context._jvm
    try:
        jvm.java.lang.Class.forName(name, False, jvm.java.lang.ClassLoader.getSystemClassLoader())
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "ClassNotFoundException":
            raise
        return False
    return True


def define(context: SparkContext, classes: Mapping[str, bytes], main: str) -> None:
    """Have the loader of the class path know classes; `main` comes last: then all are there."""
    from py4j.protocol import Py4JJavaError

    gateway: Any = context._gateway
    java = gateway.jvm.java.lang
    loader = java.ClassLoader.getSystemClassLoader()
    named = [java.Class.forName(name) for name in ("java.lang.String", "[B")]
    kinds = _array(gateway, java.Class, [*named, java.Integer.TYPE, java.Integer.TYPE])
    method = java.Class.forName("java.lang.ClassLoader").getDeclaredMethod("defineClass", kinds)
    method.setAccessible(True)
    waiting = [name for name in classes if name != main]
    refused = 0
    while waiting:
        name = waiting.pop(0)
        try:
            _define(gateway, method, loader, name, classes[name])
            refused = 0
        except Py4JJavaError:  # its parent may be one of those that wait
            refused += 1
            if refused > len(waiting):
                raise
            waiting.append(name)
    _define(gateway, method, loader, main, classes[main])


def _define(gateway: Any, method: Any, loader: Any, name: str, code: bytes) -> None:
    values = [name, code, 0, len(code)]
    method.invoke(loader, _array(gateway, gateway.jvm.java.lang.Object, values))


def _array(gateway: Any, kind: Any, values: Sequence[Any]) -> Any:
    array = gateway.new_array(kind, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def _cache_file(context: SparkContext, source: str) -> Path | None:
    directory = cache_directory()
    if directory is None:
        return None
    digest = hashlib.blake2b(f"{context.version}\n{source}".encode(), digest_size=8)
    return directory / f"classes-{digest.hexdigest()}.jar"


def _read(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as jar:
        os.utime(path)  # in use
        return {
            name.removesuffix(_SUFFIX).replace("/", "."): jar.read(name) for name in jar.namelist()
        }
