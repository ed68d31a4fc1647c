"""The class by which the JVM of a local Spark writes local files, checkpoints above all.

Hadoop's own class forks a `chmod` for each file that it makes, 6 in a batch of two state levels
over two slots, of 3 to 7 ms each; and it never syncs one. A process that is killed loses nothing by
that, but a machine that loses its power does: what a batch wrote in the last seconds before may be
empty files. Below directories that were named by `sync_below`, a file is on the disk when it is
closed, and its name when it has been renamed to it. What is made below those that were named by
`keep_private` is for this user alone, whatever Spark asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topo.engine.spark.jvm.classes import load
from topo.errors import EngineError

if TYPE_CHECKING:
    from pyspark import SparkContext

CLASS = "LocalFiles"


def install(context: SparkContext) -> None:
    """Put the class in the place of Hadoop's."""
    replace_local_files(context, load(context, CLASS).LocalFiles())


def replace_local_files(context: SparkContext, raw: Any) -> None:
    """Have every local file written by this object from now on."""
    jvm: Any = context._jvm
    raw.initialize(jvm.java.net.URI("file:///"), _hadoop(context))
    of = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem")
    field = of.getDeclaredField("fs")
    field.setAccessible(True)
    field.set(local_files(context), raw)


def sync_below(context: SparkContext, directory: str, *, is_required: bool = True) -> None:
    """Have the files below a directory synced from now on.

    Raises EngineError if that cannot be and is required.
    """
    raw = local_files(context).getRawFileSystem()
    if _has_method(raw, "syncBelow"):
        raw.syncBelow(directory)
    elif is_required:
        raise EngineError(
            "this process's Spark cannot sync the files of a checkpoint",
            hint="let topo start Spark, or take topology.checkpoint.sync out",
        )


def keep_private(context: SparkContext, directory: str) -> None:
    """Have what is made below a directory made for this user alone, if this Spark can do that."""
    raw = local_files(context).getRawFileSystem()
    if _has_method(raw, "keepPrivate"):
        raw.keepPrivate(directory)


def _has_method(raw: Any, method: str) -> bool:
    """Return True if an object of the JVM has a method of this name."""
    return any(each.getName() == method for each in raw.getClass().getMethods())


def local_files(context: SparkContext) -> Any:
    """Return the object that Spark gets from Hadoop's cache for every local file."""
    jvm: Any = context._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.getLocal(_hadoop(context))


def _hadoop(context: SparkContext) -> Any:
    jsc: Any = context._jsc
    return jsc.hadoopConfiguration()
