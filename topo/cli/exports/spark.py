"""A topology whose file is a program of Spark's: for Spark's operator, and for YARN.

Both start the driver by spark-submit in cluster mode, so the file ends with `topo.main(...)`.
"""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Any

from topo.cli.exports.request import APP, Export
from topo.errors import ConfigError

_OVERHEAD = 0.4
_SCRIPT = """\
#!/bin/sh
# Starts {name} on YARN in cluster mode: YARN starts the driver, and starts it again if it fails.
# The file ends with topo.main(...), which names the checkpoint: an hdfs: or s3a: directory.
set -eu
: "${{HADOOP_CONF_DIR:?name the directory with the settings of the cluster}}"
: "${{ENVIRONMENT:?name the archive of the environment, as venv-pack or conda-pack makes it}}"
exec spark-submit \\
{options}
"""


def application(export: Export) -> dict[str, Any]:
    """Return a SparkApplication of Spark's operator."""
    from importlib.metadata import version

    account = {"serviceAccount": "spark-operator-spark"}
    spec: dict[str, Any] = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "image": export.image,
        "sparkVersion": version("pyspark"),
        "mainApplicationFile": f"local://{PurePosixPath(APP) / _file(export)}",
        "arguments": list(export.args),
        "memoryOverheadFactor": str(_OVERHEAD),
        "sparkConf": _settings(export),
        "restartPolicy": {
            "type": "OnFailure",
            "onFailureRetries": 100000,
            "onFailureRetryInterval": 10,
            "onSubmissionFailureRetries": 10,
            "onSubmissionFailureRetryInterval": 20,
        },
        "driver": {"cores": 1, "memory": "2g", **account},
        "executor": {
            "cores": 1,
            "instances": export.workers,
            "memory": f"{int(export.memory_mib / (1 + _OVERHEAD))}m",
        },
    }
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": export.label},
        "spec": spec,
    }


def script(export: Export) -> str:
    """Return a script that submits to YARN."""
    heap = int(export.memory_mib / (1 + _OVERHEAD))
    conf = {
        **_settings(export),
        "spark.executor.memory": f"{heap}m",
        "spark.executor.instances": str(export.workers),
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.executorEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.yarn.maxAppAttempts": "100",
        "spark.yarn.am.attemptFailuresValidityInterval": "1h",
    }
    options = [
        ["--master", "yarn"],
        ["--deploy-mode", "cluster"],
        ["--name", export.name],
        *(["--conf", f"{key}={value}"] for key, value in conf.items()),
    ]
    lines = [" ".join(map(shlex.quote, option)) for option in options]
    lines += ['--archives "$ENVIRONMENT#environment"']
    lines += [" ".join(map(shlex.quote, [_file(export), *export.args])) + ' "$@"']
    text = " \\\n".join(f"  {line}" for line in lines)
    return _SCRIPT.format(name=export.name, options=text)


def _settings(export: Export) -> dict[str, str]:
    """Return Spark's settings; topo's own are in the file, or in the topo.toml beside it."""
    own = [key for key in export.conf if not key.startswith("spark.")]
    if own:
        raise ConfigError(
            f"Spark's command line takes spark.* settings alone; got {', '.join(own)}",
            hint="write them into topo.main(topology, {...}), or into topo.toml",
        )
    # topo would set it as well, but later than the cluster's own part of the driver begins.
    return {"spark.authenticate": "true", **{key: str(v) for key, v in export.conf.items()}}


def _file(export: Export) -> str:
    place = export.target.partition(":")[0]
    if not place.endswith(".py"):
        raise ConfigError(
            f"spark-submit runs a file; got {export.target}", hint="a file that ends with topo.main"
        )
    return place
