"""Spark's session: its start, its end, and the settings that topo relies on.

Spark's own output (its log, the output of its Python workers) goes to a file, so that the terminal
shows only topo's. Settings under `spark.*` in a topology's conf win over those in this module,
except the few on which exactly-once depends.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local
from topo.engine.spark.driver.checkpoint import REAL_TIME
from topo.engine.spark.driver.masters import check_master, with_room
from topo.engine.spark.driver.shipment import DAEMON, Shipment, workers_python
from topo.engine.spark.jvm.converters import avoid_pandas
from topo.engine.spark.jvm.java import Java, prepare_java
from topo.engine.spark.jvm.launch import PYTHON_VARIABLE, JvmStart, environment
from topo.engine.spark.jvm.speedups import apply_jvm_speedups
from topo.engine.spark.jvm.submitted import is_submitted, submitted_context, users_settings
from topo.errors import ConfigError, EngineError
from topo.logs.directories import make_log_directory
from topo.storage.checkpoints import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("topo.spark")


def _is_told(record: logging.LogRecord) -> bool:
    """Return False for what Py4J logs, not always by a logger of its own."""
    return record.module != "java_gateway"


# Py4J logs each call that a JVM no longer answers, with its stack, and raises it as well.
logging.getLogger("py4j").setLevel(logging.CRITICAL)
logging.getLogger().addFilter(_is_told)
_STREAMING = "spark.sql.streaming."
_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing."
_STATE = "org.apache.spark.sql.execution.streaming.state."

# A stage that runs again inside a batch could pair one attempt's data with another's state.
NOT_NEGOTIABLE = {
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
    "spark.sql.adaptive.enabled": "false",
    f"{_STREAMING}stateStore.checkpointFormatVersion": "2",
    f"{_STREAMING}stateStore.providerClass": f"{_STATE}RocksDBStateStoreProvider",
}

# Without it, TCP on loop-back stalls every Python stage for 40 ms.
_CORE = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.shuffle.checksum.enabled": "false",
    **{key: value for key, value in NOT_NEGOTIABLE.items() if not key.startswith("spark.sql.")},
}

# A JVM has little to do, each core has one, and the optimising compiler warms up slowly. A batch
# leaves 100 MB of garbage: if that fills the young generation, each batch waits for a collection.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn256m"

# Only real-time mode has such shuffles. Each row leaves at once, so the thread that would flush
# what waits may sleep.
_REAL_TIME = {
    "spark.shuffle.streaming.networkBufferSize": "8",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "50",
    "spark.shuffle.streaming.checksum.enabled": "false",
    "spark.dynamicAllocation.enabled": "false",
}

# Whoever reaches one of Spark's ports, which by default are at the machine's outer address, can
# send it messages and objects, and read its blocks. On one machine nobody else needs them, and what
# the processes of other users may reach is behind a secret, which Spark draws.
_HOST, _BIND_ADDRESS = "spark.driver.host", "spark.driver.bindAddress"
_LOOP_BACK = "127.0.0.1"
_LOCAL_IP = "SPARK_LOCAL_IP"
_SHUFFLES = "spark.shuffle.service.enabled"

# On one machine, compressing frames for the local disk gains nothing, and the UI's records are
# needed by the UI only.
_CORE_LOCAL = {
    "spark.python.daemon.module": "topo.engine.spark.worker.daemon",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": _JVM,
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.broadcast.checksum": "false",
    "spark.broadcast.blockSize": "256k",  # is taken whole for the 20 kB of a stage's code
    "spark.ui.enabled": "false",
    "spark.ui.liveUpdate.period": "-1",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
    **_REAL_TIME,
}

# A host that loses its power, or its network, says nothing: with Spark's own limits a topology
# stood still for 95 to 190 s, a third of that in one fetch of a block that nobody would send any
# more. Spark looks every 2 s for executors that have missed 20 s, and a fetch gives up after 21 s:
# 10 for an answer, 1, and 10 for another connection. A JVM of topo's has little garbage, so a
# pause that long is no collection; and a loss that was none costs a start of the query. What is
# asked of the driver itself may take longer, since a busy one answers late.
_SILENCE, _HEARTBEAT = "spark.network.timeout", "spark.executor.heartbeatInterval"
_SILENT_HOSTS = {
    _SILENCE: "20s",
    "spark.network.timeoutInterval": "2s",
    _HEARTBEAT: "3s",
    "spark.rpc.askTimeout": "60s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
    "spark.shuffle.io.connectionTimeout": "10s",
}

# The state is in Python's memory, beside the JVM's heap: Spark's tenth more is no room for it.
_ROOM_FOR_PYTHON = {"spark.executor.memoryOverheadFactor": "0.4"}

# Only one executor has a slot's instances, and no other slot may share it.
_CORE_CLUSTER = {
    # YARN's directory for temporary files has a longer path than a unix socket may have.
    "spark.python.unix.domain.socket.dir": "/tmp",
    **_SILENT_HOSTS,
    "spark.executor.cores": "1",
    "spark.python.daemon.module": DAEMON,
    "spark.driver.extraJavaOptions": _JVM,
    "spark.executor.extraJavaOptions": _JVM,
    # A slot whose executor was lost runs beside another slot; it must move to a new executor.
    "spark.locality.wait": "200ms",
}

# Its tasks run all at once, each with a place of its own, and a slot's process is beside its tasks:
# the fewer executors the better.
_REAL_TIME_CLUSTER = {**_REAL_TIME, "spark.shuffle.streaming.checksum.enabled": "true"}

# A batch is few, large rows: generating code for their projections costs more than it saves, in
# every task of a state stage. So does a checksum of every shuffled byte, which detects differences
# in a stage's second attempt, and other settings rule such attempts out.
_SQL = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    f"{_STREAMING}stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STREAMING}stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # The value is per slot and level, outside the heap; the default is 64.
    f"{_STREAMING}stateStore.rocksdb.writeBufferSizeMB": "16",
    f"{_STREAMING}numRecentProgressUpdates": "20",
    **{key: value for key, value in NOT_NEGOTIABLE.items() if key.startswith("spark.sql.")},
}

# The default manager forks a chmod for each file.
_SQL_FILE_CHECKPOINT = {
    f"{_STREAMING}checkpointFileManagerClass": f"{_MANAGERS}FileSystemBasedCheckpointFileManager",
    f"{_STREAMING}checkpoint.fileChecksum.enabled": "false",
}

_CAUSED_BY = re.compile(r"^Caused by: (.{1,300})", re.MULTILINE)
_starting = threading.Lock()
_STOP_SECS = 30.0
_ENOUGH_FILES = 4096
_EXECUTOR_CORES = "spark.executor.cores"
_jvm: JvmStart | None = None  # guarded by _starting, as is the next
_records = False


def spark_settings(conf: Mapping[str, Any]) -> dict[str, str]:
    """Return the `spark.*` settings of a topology, as Spark takes them."""
    given = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in conf.items()
        if key.startswith("spark.")
    }
    for key, value in given.items():
        if NOT_NEGOTIABLE.get(key, value) != value:
            raise ConfigError(
                f"{key} has to be {NOT_NEGOTIABLE[key]}; exactly-once state rests on it",
                hint=f"take {key} out",
            )
    return given


def core_settings(
    master: str, conf: Mapping[str, Any], places: int | None = None
) -> dict[str, str]:
    """Return the settings with which Spark is started.

    `places` is the number of task places of a topology in real-time mode, if it is known.
    """
    users = spark_settings(conf)
    if is_local(master):
        kind = {**_CORE_LOCAL, **_loop_back(users)}
    elif conf.get("topology.mode") == "real-time":
        cluster = {key: value for key, value in _CORE_CLUSTER.items() if key != _EXECUTOR_CORES}
        kind = {**cluster, **_REAL_TIME_CLUSTER, **_share(master, conf, places)}
    else:
        kind = {**_CORE_CLUSTER, **_share(master, conf, conf.get("topology.workers"))}
    if _HEARTBEAT in users:  # Spark refuses a silence that is no longer; its own is 120 s
        kind = {key: value for key, value in kind.items() if key != _SILENCE}
    return {
        "spark.master": with_room(master),
        "spark.app.name": str(conf.get("topology.name") or "topo"),
        "spark.pyspark.python": sys.executable,
        **_CORE,
        **kind,
        **(_ROOM_FOR_PYTHON if _is_in_containers(master) else {}),
        **_authenticated(master, users),
        **users,
    }


def _loop_back(users: Mapping[str, str]) -> dict[str, str]:
    """Return where Spark listens on one machine, if the user does not say."""
    if _HOST in users:  # it is bound where it is called, unless they say otherwise
        return {}
    return {_HOST: _LOOP_BACK, _BIND_ADDRESS: _LOOP_BACK}


def _authenticated(master: str, users: Mapping[str, str]) -> dict[str, str]:
    """Have Spark draw a secret for its ports, where it can give it to the executors.

    A standalone cluster's secret is its master's and workers', so the user has to say it; and a
    shuffle service that does not ask for one fails those that do.
    """
    draws = is_local(master) or _is_in_containers(master)
    return {"spark.authenticate": "true"} if draws and users.get(_SHUFFLES) != "true" else {}


def _is_in_containers(master: str) -> bool:
    """Return True for a cluster that ends an executor which takes more memory than was asked."""
    return master == "yarn" or master.startswith("k8s://")


def _share(master: str, conf: Mapping[str, Any], wanted: int | None) -> dict[str, str]:
    """Limit the cores to what the topology wants: others want to use the cluster as well."""
    cores = spark_settings(conf).get(_EXECUTOR_CORES, "1")
    if not wanted or not cores.isdigit():
        return {}
    if master.startswith("spark://"):
        return {"spark.cores.max": str(wanted)}
    return {"spark.executor.instances": str(-(-int(wanted) // max(1, int(cores))))}


def query_settings(slots: int, checkpoint: str, conf: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of one query."""
    files = _SQL_FILE_CHECKPOINT if local_path(checkpoint) else {}
    given = {k: v for k, v in spark_settings(conf).items() if k.startswith("spark.sql.")}
    return {**_SQL, **files, "spark.sql.shuffle.partitions": str(slots), **given}


def start_session(
    master: str,
    conf: Mapping[str, Any],
    log_file: Path | None = None,
    *,
    places: int | None = None,
) -> SparkSession:
    """Return this process's Spark session; start Spark if there is none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with _starting:
        active = SparkContext._active_spark_context
        if active is not None:
            return _joined(SparkSession(active), master)
        check_master(master)
        if is_submitted():
            return _in_submitted(master, conf, places)
        java, home = prepare_java()
        path = log_file or make_log_directory() / "spark.log"
        shipment = None if is_local(master) else Shipment(workers_python(conf), path.parent)
        python = shipment.python if shipment else sys.executable
        settings = {**core_settings(master, conf, places), "spark.pyspark.python": python}
        # Real-time mode has no Python processes of Spark's.
        forks = is_local(master) and conf.get("topology.mode") != REAL_TIME
        variables = {
            **(_ui_at_loop_back(os.environ) if is_local(master) else {}),
            "JAVA_HOME": str(home),
            # Otherwise each JVM thread has a glibc arena and keeps freed memory in it.
            "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "4"),
            # The setting is not enough: the driver's own state runner only reads the variable.
            PYTHON_VARIABLE: python,
            "PYTHONPATH": _with_topo(os.environ.get("PYTHONPATH", "")),
        }
        with environment({**variables, **_locale(os.environ)}):
            return _launched(JvmStart(settings, java, forks=forks), path, java, shipment)


def _in_submitted(master: str, conf: Mapping[str, Any], places: int | None) -> SparkSession:
    """Start Spark in the JVM that spark-submit has started; its log is spark-submit's."""
    from pyspark.sql import SparkSession

    python = workers_python(conf)
    settings = {**core_settings(master, conf, places), "spark.pyspark.python": python}
    variables = {
        PYTHON_VARIABLE: python,
        "PYTHONPATH": _with_topo(os.environ.get("PYTHONPATH", "")),
    }
    avoid_pandas()
    with environment(variables):
        context = submitted_context(settings, users_settings())
        if is_local(master):
            apply_jvm_speedups(context)
        else:
            Shipment(python, make_log_directory(), is_there=True).send(context)
    log.info("Spark %s on %s, started by spark-submit", context.version, context.master)
    return SparkSession(context)


def _ui_at_loop_back(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable by which Spark's own pages, if the user wants them, know their address.

    Without it they are at every address of the machine, whatever the settings say.
    """
    return {} if environ.get(_LOCAL_IP) else {_LOCAL_IP: _LOOP_BACK}


def _locale(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the locale of the JVM, which in C's own cannot open a file named with an umlaut."""
    names = (environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    chosen = next(filter(None, names), "C")
    return {"LC_ALL": "C.UTF-8"} if chosen in ("C", "POSIX") else {}


def _launched(start: JvmStart, path: Path, java: Java, shipment: Shipment | None) -> SparkSession:
    global _jvm
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if _jvm is not None:  # of a JVM that has died
        _jvm.close()
    _jvm = start
    begun = path.stat().st_size if path.exists() else 0
    avoid_pandas()
    try:
        gateway = start.launch(path, shipment, records=_records)
        context = SparkContext(conf=start.conf(), gateway=gateway)
        if shipment:
            shipment.send(context)
        session = SparkSession(context)
    except Exception as error:
        start.abandon()
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise EngineError(
            f"Spark did not start on {java}: {_first_error(path, begun) or error}",
            code="spark-start",
            at=str(path),
            hint=_few_files(files) or "topo doctor --spark",
        ) from error
    context.setLogLevel("WARN")
    if is_local(context.master):
        apply_jvm_speedups(context)
    log.info("Spark %s on %s, %s; its log: %s", context.version, context.master, java, path)
    return session


def _few_files(limit: int) -> str:
    """Return a hint if a JVM may not open as many files as Spark has jars; else ""."""
    if limit == resource.RLIM_INFINITY or limit >= _ENOUGH_FILES:
        return ""
    return (
        f"a process may open {limit} files here, and Spark has hundreds of jars: "
        f"ulimit -n {_ENOUGH_FILES}"
    )


def _with_topo(python_path: str) -> str:
    """Add topo's directory to a Python path, since topo may not be installed for the workers."""
    home = str(Path(__file__).resolve().parents[4])
    known = python_path.split(os.pathsep) if python_path else []
    return os.pathsep.join(known if home in known else [*known, home])


def _joined(session: SparkSession, master: str) -> SparkSession:
    running = session.sparkContext.master
    if with_room(master) not in (running, with_room(running)):
        raise EngineError(
            f"this process has Spark running on {running}, not on {master}",
            hint="one process has one Spark: use that master, or another process",
        )
    if is_local(running):
        _check_python(session.sparkContext.pythonExec)
    conf = session.sparkContext.getConf()
    for key in ("spark.stage.maxConsecutiveAttempts", "spark.speculation"):
        if conf.get(key, "") != NOT_NEGOTIABLE[key]:
            raise EngineError(
                f"this process's Spark was started with {key}={conf.get(key, 'its default')}",
                hint=f"let topo start Spark, or start it with {key}={NOT_NEGOTIABLE[key]}",
            )
    return session


def _check_python(name: str) -> None:
    """Raise an error if a Spark that somebody else started has workers of another Python."""
    path = shutil.which(name) or name
    if path == sys.executable:
        return
    try:
        asked = [path, "-c", "import sys; print(sys.prefix)"]
        prefix = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        prefix = ""
    if prefix != sys.prefix:
        raise EngineError(
            f"this process's Spark was started without topo, and its workers run {path}, which has "
            "other packages",
            code="workers-python",
            hint=f"let topo start Spark, or start it with PYSPARK_PYTHON={sys.executable}",
        )


def query_session(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a session of the same Spark with settings of its own."""
    own = session.newSession()
    for key, value in settings.items():
        own.conf.set(key, value)
    return own


def _first_error(path: Path, begun: int) -> str:
    """Return the first error of a log since it had `begun` bytes: earlier starts append to it.

    An error of Java's start of a class says nothing; the last of its causes does.
    """
    try:
        text = path.read_bytes()[begun:].decode(errors="replace")
    except OSError:
        return ""
    telling = [line for line in text.splitlines() if "Exception" in line or "rror" in line]
    if not telling:
        return ""
    first, causes = telling[0].strip(), _CAUSED_BY.findall(text)
    return f"{first}; caused by {causes[-1]}" if causes and causes[-1] not in first else first


def record_classes(records: bool) -> None:
    """Have JVMs that this process starts from now on write the archive of their classes, or not."""
    global _records
    _records = records


def stop_session(patience_secs: float = _STOP_SECS) -> None:
    """Stop this process's Spark, and wait until its JVM has ended."""
    from pyspark import SparkContext

    with _starting:
        context, gateway = SparkContext._active_spark_context, SparkContext._gateway
        if context is None or gateway is None:
            return
        context.stop()
        if gateway.proc is None:  # spark-submit's, which ends after this process
            return
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        gateway.proc.stdin.close()
        gateway.proc.wait(patience_secs)
        if _jvm is not None:
            _jvm.close()
