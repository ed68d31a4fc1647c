"""`topo export`: files with which other programs run topologies."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from topo.cli.attended import GRACE_SECS
from topo.cli.exports.request import Export, state_directory
from topo.cli.failures import usage_error
from topo.cli.options import TargetCommand, arguments_of_target, parse_pair
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs
from topo.config import Layer, check_layers, merged
from topo.topology.submission import NAME_HINT, is_name, name_for, no_name

KINDS = {
    "systemd": "topo.service",
    "k8s": "topology.yaml",
    "compose": "compose.yaml",
    "spark-operator": "application.yaml",
    "yarn": "submit.sh",
    "prometheus": "topo.rules.yml",
    "grafana": "topo.json",
}
"""What can be written, and the name of its file."""
_FILES = {"prometheus": "metrics/alerts.yml", "grafana": "ui/grafana.json"}
_OF_ALL = ("systemd", *_FILES)


@click.command(cls=TargetCommand)
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("target", required=False)
@click.option("-n", "--name", metavar="NAME", help="Give it this name; default: the file's.")
@click.option("--image", metavar="IMAGE", help="Run this image; default: the name, :latest.")
@click.option(
    "-c",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set KEY. VALUE is JSON, else a string.",
)
@click.option(
    "--workers", type=click.IntRange(1), default=2, show_default=True, help="Give it N slots."
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(512),
    default=4096,
    show_default=True,
    metavar="MIB",
    help="Give its container, or each executor, so much memory.",
)
@click.option(
    "--checkpoint", metavar="DIR", help="Keep state there; default: a directory of a volume."
)
@click.option(
    "--master",
    metavar="URL",
    help="Run Spark there; default: in the container. k8s://https://kubernetes.default.svc: "
    "each slot in a pod.",
)
@click.option(
    "--grace",
    "grace_secs",
    type=click.IntRange(0),
    default=int(GRACE_SECS),
    show_default=True,
    metavar="SECS",
    help="Give messages in flight so long when it is stopped.",
)
@click.option(
    "--secret", default="", metavar="NAME", help="Take variables from this secret, or env file."
)
@click.option("--monitor", is_flag=True, help="Add a PodMonitor for Prometheus' operator.")
@click.option("--user", "is_users", is_flag=True, help="Write systemd's for a service of your own.")
@click.option("--standby", is_flag=True, help="Write systemd's for `topo up --standby`.")
@common_options()
@click.pass_obj
def export(
    out: Output,
    kind: str,
    target: str | None,
    name: str | None,
    image: str | None,
    pairs: tuple[str, ...],
    workers: int,
    memory_mib: int,
    checkpoint: str | None,
    master: str | None,
    grace_secs: int,
    secret: str,
    monitor: bool,
    is_users: bool,
    standby: bool,
) -> None:
    """Print what other programs run topologies by, or watch them by.

    systemd gets a unit for `topo up`. Kubernetes and compose run TARGET, as the image has it in
    /app, by `topo run`; Spark's operator and YARN run a file that ends with `topo.main(...)`.
    Prometheus gets rules of alerts, Grafana a dashboard.

    \b
    Examples:
      topo export systemd | sudo tee /etc/systemd/system/topo.service
      topo export k8s wordcount.py --image registry/words:7 | kubectl apply -f -
      topo export compose wordcount.py > compose.yaml
      topo export yarn wordcount.py > submit.sh
      topo export prometheus > topo.rules.yml
    """
    if kind in _OF_ALL and target:
        raise usage_error(f"{KINDS[kind]} is for all topologies", at=target)
    if kind in _FILES:
        text = files("topo").joinpath(_FILES[kind]).read_text(encoding="utf-8")
    elif kind == "systemd":
        from topo.cli.exports.systemd import unit

        text = unit(Runs(out).registry.home.absolute(), is_users=is_users, standby=standby)
    else:
        if not target:
            raise usage_error(f"topo export {kind} needs a TARGET", at=kind, hint="wordcount.py")
        layers = [Layer(f"-c {pair}", parse_pair(pair)) for pair in pairs]
        check_layers(layers)
        name = name or _name_of(target)
        if not is_name(name):
            raise usage_error(no_name(name), at="-n", hint=NAME_HINT)
        request = Export(
            name=name,
            target=target,
            image=image or f"{name.lower()}:latest",
            conf=merged(*layers),
            workers=workers,
            memory_mib=memory_mib,
            grace_secs=grace_secs,
            checkpoint=checkpoint or state_directory(name),
            master=master or f"local[{workers}]",
            secret=secret,
            args=arguments_of_target(),
        )
        text = _text(kind, request, monitor)
    if out.json:
        out.answer_json({"kind": kind, "name": KINDS[kind], "text": text})
    else:
        out.answer(text.rstrip("\n"))


def _text(kind: str, request: Export, monitor: bool) -> str:
    from topo.cli.exports import compose, kubernetes, spark
    from topo.cli.exports.yaml import stream_of

    if kind == "yarn":
        return spark.script(request)
    if kind == "k8s":
        monitors = [kubernetes.monitor(request)] if monitor else []
        return stream_of([*kubernetes.documents(request), *monitors])
    return stream_of(
        [compose.project(request) if kind == "compose" else spark.application(request)]
    )


def _name_of(target: str) -> str:
    place = target.partition(":")[0]
    is_file = place.endswith((".py", ".yaml", ".yml"))
    return name_for(Path(place).stem if is_file else place.rpartition(".")[2])
