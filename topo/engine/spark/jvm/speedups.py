"""Patches inside the JVM of a local Spark, beyond the reach of Spark's settings.

They only serve speed: a batch of a word count takes a quarter less. A patch that a version of Spark
does not allow is skipped, and Spark runs as it would without.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topo.engine.spark.jvm.local_files import install, local_files

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger("topo.spark")


def apply_jvm_speedups(context: SparkContext) -> None:
    """Patch the JVM to shorten batches."""
    for change in (
        _write_no_checksum_files,
        _set_permissions_without_forks,
        _forget_where_settings_are_from,
        _generate_no_code,
    ):
        _where_possible(change, context)


def _where_possible(change: Callable[[SparkContext, Any], None], context: SparkContext) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        change(context, context._jvm)
    except (Py4JError, TypeError) as error:  # the latter where a class is missing
        said = [line for line in str(error).splitlines() if "Exception" in line]
        why = said[0] if said else str(error)
        log.info("Spark runs without %s: %s", change.__name__.strip("_"), why)


def _write_no_checksum_files(context: SparkContext, jvm: Any) -> None:
    """Write no checksum file beside each local file of a checkpoint; exactly-once needs none."""
    local_files(context).setWriteChecksum(False)


def _set_permissions_without_forks(context: SparkContext, jvm: Any) -> None:
    """Set file permissions by a system call instead of a process."""
    install(context)


def _forget_where_settings_are_from(context: SparkContext, jvm: Any) -> None:
    """Drop the origins of Hadoop's settings, which are never used.

    Each level with state sends its tasks all settings in every batch, and the origins of all 1100
    are compressed one by one. The map is replaced: to clear it from here would ask the JVM for its
    entries one by one, for a second and more.
    """
    field = _field(jvm, "org.apache.hadoop.conf.Configuration", "updatingResource")
    field.set(_hadoop(context), jvm.java.util.concurrent.ConcurrentHashMap())


def _generate_no_code(context: SparkContext, jvm: Any) -> None:
    """Turn code generation off in the threads that serve a stage's state, which have no session.

    Otherwise every task generates Java source for a dozen projections, to run each once.
    """
    sql = jvm.org.apache.spark.sql.internal
    conf = sql.SQLConf()
    conf.setConfString("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    sql.SQLConf.getFallbackConf()  # makes what is replaced here
    always = jvm.com.google.common.base.Suppliers.ofInstance(conf)
    field = _field(jvm, "org.apache.spark.sql.internal.SQLConf$", "fallbackConf")
    field.set(None, jvm.java.lang.ThreadLocal.withInitial(always))


def _field(jvm: Any, of: str, name: str) -> Any:
    field = jvm.java.lang.Class.forName(of).getDeclaredField(name)
    field.setAccessible(True)
    return field


def _hadoop(context: SparkContext) -> Any:
    jsc: Any = context._jsc
    return jsc.hadoopConfiguration()
