"""`topo.main`: a file that is a program by itself, as `spark-submit` and Python run one.

Clusters that start drivers themselves (YARN and Kubernetes in cluster mode, operators, EMR's steps)
know neither topo's command nor its registry: they run a file. What `topo run` takes from its
options, this takes from the code, from topo.toml, and, below these, from spark-submit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from topo.builder import TopologyBuilder
from topo.cli.attended import GRACE_SECS, attend, with_checkpoint
from topo.cli.failures import print_failure
from topo.cli.output import Output
from topo.config import Config, Layer, check_layers, merged
from topo.config.project import load_project
from topo.engine.base import Launch
from topo.topology.model import Topology
from topo.topology.submission import check_submission

ENGINE = "spark"


def main(
    topology: Topology | TopologyBuilder,
    conf: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    grace_secs: float = GRACE_SECS,
    log_format: str = "text",
) -> NoReturn:
    """Run a topology to its end, as the program that this process is; then end the process.

    Write it behind `if __name__ == "__main__":`, and start the file by `spark-submit`, or by Python
    on this machine. Spark's master and settings are spark-submit's; those of topo.toml, by the
    environment in $TOPO_ENV, and then `conf` lie over them. SIGTERM gives messages in flight
    `grace_secs`. The exit codes are those of `topo run`. `log_format` is "text" or "json".
    """
    as_json = log_format == "json"
    out = Output(json=as_json)
    try:
        code = _run(topology, conf or {}, name, grace_secs, as_json)
    except Exception as error:
        code = print_failure(error, out)
    sys.stdout.flush()
    sys.exit(code)


def _run(
    topology: Topology | TopologyBuilder,
    conf: Mapping[str, Any],
    name: str | None,
    grace_secs: float,
    as_json: bool,
) -> int:
    if isinstance(topology, TopologyBuilder):
        topology = topology.create_topology()
    project = load_project(os.environ.get("TOPO_ENV"))
    environment = project.environment
    layers = (*project.layers, Layer("topo.main", dict(conf)))
    warnings = [*topology.warnings, *check_layers(layers, topology.components)]
    settings = merged(*layers)
    name = name or str(settings.get(Config.name.key) or Path(sys.argv[0]).stem)
    check_submission(name, topology)
    launch = Launch(
        name,
        topology,
        with_checkpoint(settings, environment, name),
        master=environment.master if environment.name else "",
        files=environment.py_files,
    )
    return attend(launch, engine=ENGINE, grace_secs=grace_secs, as_json=as_json, warnings=warnings)
