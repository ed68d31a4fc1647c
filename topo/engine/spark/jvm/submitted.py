"""The JVM of a process that spark-submit has started.

That JVM is there before Python is, with the settings of the command line and of Spark's files. So
they count as the user's own, above topo's, and what belongs to a JVM's start cannot be set any
more: it is named, as the user has to type it.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from topo.config.masters import is_local
from topo.errors import EngineError

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger("topo.spark")
_GATEWAY = "PYSPARK_GATEWAY_PORT"
_MASTER, _DEPLOY_MODE, _SECRET = "spark.master", "spark.submit.deployMode", "spark.authenticate"
_OF_THE_START = ("spark.driver.memory", "spark.driver.extraJavaOptions")


def is_submitted() -> bool:
    """Return True if spark-submit has started this process."""
    return _GATEWAY in os.environ


def submitted_settings() -> dict[str, str]:
    """Return the settings that spark-submit was given, from every source that it reads."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())


def submitted_master() -> str:
    """Return the master that spark-submit was given."""
    return submitted_settings().get(_MASTER, "local[*]")


def users_settings() -> dict[str, str]:
    """Return the settings that lie over topo's."""
    return {key: value for key, value in submitted_settings().items() if key != _MASTER}


def submitted_context(settings: Mapping[str, str], users: Mapping[str, str]) -> SparkContext:
    """Start Spark in the JVM that is there."""
    from pyspark import SparkConf, SparkContext

    if missing := too_late(settings, users):
        log.info("spark-submit decides of these alone; topo would take %s", " ".join(missing))
    chosen = {key: value for key, value in settings.items() if key not in _OF_THE_START}
    if users.get(_DEPLOY_MODE) == "cluster" and _SECRET not in users:
        chosen.pop(_SECRET, None)  # the cluster's part of this process has begun without
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(chosen.items()))
    try:
        return SparkContext(conf=conf)
    except Exception as error:
        raise EngineError(
            f"Spark did not start: {error}", code="spark-start", hint="spark-submit's log has more"
        ) from error


def too_late(settings: Mapping[str, str], users: Mapping[str, str]) -> list[str]:
    """Return the options of spark-submit that would set what topo sets where it starts the JVM."""
    keys = [*_OF_THE_START]
    if users.get(_DEPLOY_MODE) == "cluster" and not is_local(settings[_MASTER]):
        keys.append(_SECRET)
    return [
        f"--conf {shlex.quote(f'{key}={settings[key]}')}"
        for key in keys
        if key in settings and key not in users
    ]
