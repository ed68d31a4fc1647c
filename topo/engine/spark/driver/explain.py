"""Spark's plan of a topology, for `topo explain --spark`: the query is built, and not run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from topo.engine.spark.driver.checkpoint import REAL_TIME
from topo.engine.spark.driver.query import build_query
from topo.engine.spark.driver.run_resources import tracking_plan
from topo.engine.spark.jvm.session import (
    query_session,
    query_settings,
    start_session,
    stop_session,
)
from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.query import build_rows
from topo.logs.directories import make_log_directory
from topo.topology.model import Topology
from topo.tracking.client import Lease
from topo.tracking.transport import AckerTarget


def spark_plan(topology: Topology, plan: Plan, conf: Mapping[str, Any], master: str) -> str:
    """Return Spark's text of the physical plan; stop Spark if it was started for this."""
    from pyspark import SparkContext

    was_running = SparkContext._active_spark_context is not None
    logs = make_log_directory()
    try:
        session = start_session(master, conf, logs / "spark.log")
    except BaseException:
        with suppress(OSError):
            logs.rmdir()  # unless there is a log in it, which tells why
        raise
    try:
        own = query_session(session, query_settings(plan.slots, str(logs), conf))
        if conf["topology.mode"] == REAL_TIME:
            rows = build_rows(own, plan, "", "")
        else:
            nobody = AckerTarget(topology="", token="", addresses=())
            lease = Lease(nobody, tracking_plan(topology, plan, conf), 0, (), 0.0)
            rows = build_query(own, plan, topology, "explain", lease)
        jvm = own.sparkContext._jvm
        assert jvm is not None
        text = jvm.PythonSQLUtils.explainString(rows._jdf.queryExecution(), "formatted")
        return str(text).strip()
    finally:
        if not was_running:
            stop_session()
        shutil.rmtree(logs, ignore_errors=True)
