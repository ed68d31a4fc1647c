"""`topo doctor`: independent checks of topo's needs on this machine and in an environment."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

import click

from topo.cli.failures import ENVIRONMENT
from topo.cli.options import files_named, parse_pair
from topo.cli.output import Output, common_options
from topo.config import Layer, check_layers, merged
from topo.config.masters import is_local
from topo.config.project import Environment, Project, load_project
from topo.distribution import VERSION, install_command
from topo.engine.base import engine_named
from topo.engine.shapes import Check
from topo.errors import words_of
from topo.manage.outside import left_by
from topo.manage.records import RunRecord
from topo.manage.registry import Registry

CONNECT_SECS = 3.0


Checks = Iterator[Check]


@click.command()
@click.option("--master", metavar="URL", help="Check this master instead of the environment's.")
@click.option("--spark", "on_spark", is_flag=True, help="Start Spark as well, and run a batch.")
@click.option(
    "-c", "pairs", metavar="KEY=VALUE", multiple=True, help="Start Spark with this setting."
)
@click.option("--archives", metavar="F,...", help="Unpack these archives beside the workers.")
@click.option("--warm", is_flag=True, help="Record Spark's classes, so that it starts sooner here.")
@common_options()
@click.pass_obj
def doctor(
    out: Output,
    master: str | None,
    on_spark: bool,
    pairs: tuple[str, ...],
    archives: str | None,
    warm: bool,
) -> int:
    """Check this machine and the environment for topo's requirements.

    Exit 0: all checks pass, perhaps with warnings; 5: a check fails.

    \b
    Examples:
      topo doctor
      topo doctor --spark --master spark://m1:7077
      topo doctor --warm
    """
    project = load_project(out.env)
    chosen = master or project.environment.master
    layers = [*project.layers, *(Layer(f"-c {pair}", parse_pair(pair)) for pair in pairs)]
    check_layers(layers)
    found: list[Check] = []
    for check in _checks(project, chosen):
        found += check()
    if on_spark:
        out.say(f"starting Spark on {chosen} ...")
        files = files_named(archives, "--archives")
        found += engine_named("spark").try_out(chosen, merged(*layers), files)
    else:
        found.append(Check("workers", "skip", "the workers' Python (needs --spark)"))
    if warm:
        out.say("recording Spark's classes: half a minute ...")
        found += engine_named("spark").warm(merged(*layers))
    well = all(check.status != "FAIL" for check in found)
    if out.json:
        out.answer_json(
            {
                "ok": well,
                "checks": [
                    {
                        "name": check.name,
                        "status": check.status.lower(),
                        "detail": check.detail,
                        "fix": check.fix,
                    }
                    for check in found
                ],
            }
        )
    else:
        out.lines([[check.status, check.detail, check.fix] for check in found])
    return 0 if well else ENVIRONMENT


def _checks(project: Project, master: str) -> list[Callable[[], Checks]]:
    environment = project.environment
    return [
        _versions,
        _pythons,
        engine_named("spark").check,
        lambda: _master(environment, master),
        lambda: _checkpoint_dir(environment),
        lambda: _registry(environment),
        lambda: _left_outside(environment),
        _acker_port,
        lambda: _topo_toml(project),
    ]


def _versions() -> Checks:
    packages = [f"topo {VERSION}"]
    for name in ("pyspark", "grpcio"):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            fix = install_command("spark")
            yield Check("packages", "FAIL", f"{name} is not installed", fix)
    detail = ", ".join([f"python {platform.python_version()}", *packages])
    yield Check("python", "ok", detail)


def _pythons() -> Checks:
    """Check the workers' Python, which is PYSPARK_PYTHON if that is set."""
    other = os.environ.get("PYSPARK_PYTHON")
    if not other:
        return
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run([other, "-c", code], capture_output=True, text=True, timeout=20)
        theirs = asked.stdout.strip() or asked.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        theirs = str(error)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if theirs == ours:
        yield Check("pythons", "ok", f"workers run Python {theirs}, as the driver")
    else:
        detail = f"workers run Python {theirs}, the driver {ours}"
        yield Check("pythons", "FAIL", detail, "unset PYSPARK_PYTHON, or set spark.pyspark.python")


def _master(environment: Environment, master: str) -> Checks:
    label = f"env {environment.name}: " if environment.name else ""
    kind = master.partition(":")[0]
    if is_local(master):
        yield Check("master", "ok", f"{label}master {master}")
    elif master == "yarn":
        if os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR"):
            yield Check("master", "skip", f"{label}master yarn: its address is Hadoop's to know")
        else:
            detail = f"{label}master yarn: HADOOP_CONF_DIR is not set"
            yield Check("master", "FAIL", detail, "set it to Hadoop's configuration")
    elif kind in ("spark", "k8s"):
        yield from _reach(master, label, kind)
    else:
        yield Check(
            "master",
            "FAIL",
            f"{label}no master {master!r}",
            "local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT",
        )


def _reach(master: str, label: str, kind: str) -> Checks:
    text = master.removeprefix("k8s://") if kind == "k8s" else master
    for address in text.removeprefix("spark://").split(","):
        url = urlsplit(address if "://" in address else f"//{address}")
        try:
            host, port = url.hostname or "", url.port or (443 if kind == "k8s" else 7077)
            socket.create_connection((host, port), timeout=CONNECT_SECS).close()
        except (OSError, ValueError) as error:
            detail = f"{label}master {master}: {words_of(error)}"
            yield Check("master", "FAIL", detail, f"is it up?  nc -z {url.hostname} {url.port}")
        else:
            yield Check("master", "ok", f"{label}master {master} listens")


def _checkpoint_dir(environment: Environment) -> Checks:
    directory = environment.checkpoint_dir
    if directory is None:
        return  # it is in the registry
    if "://" in directory and not directory.startswith("file://"):
        yield Check("checkpoint dir", "skip", f"checkpoint dir {directory}: Spark's to reach")
        return
    yield _writable("checkpoint dir", Path(directory.removeprefix("file://")))


def _registry(environment: Environment) -> Checks:
    home = environment.registry
    if home.exists():
        check = _writable("registry", home)
        runs = home / "runs"
        if check.status == "ok" and runs.exists() and runs.stat().st_mode & 0o077:
            yield Check(
                "registry", "warn", f"registry {home}: others can look into it", f"chmod 700 {runs}"
            )
            return
        yield check
        return
    parent = next(p for p in home.parents if p.exists())
    if _writable("registry", parent).status == "ok":
        yield Check("registry", "ok", f"registry {home} (made when needed)")
    else:
        detail = f"registry {home}: no such directory, and it cannot be made"
        yield Check("registry", "FAIL", detail, "set TOPO_HOME to a directory of yours")


def _left_outside(environment: Environment) -> Checks:
    """Name what topologies that are over have left outside, and what would drop it."""
    if not environment.registry.exists():
        return
    last: dict[str, RunRecord] = {}
    for run in Registry(environment.registry).runs():
        last[run.submission.checkpoint] = run
    for run in last.values():
        if not run.over:
            continue
        for outside in left_by(run):
            told = f"{run.name} ({run.status}), {outside.component}"
            fix = f"topo submit --resume, or topo kill --purge {run.id}"
            for line in outside.lines:
                yield Check("outside", "warn", f"{told}: {line}", fix)
            if outside.error:
                yield Check("outside", "warn", f"{told}: not known: {outside.error}", fix)


def _writable(name: str, directory: Path) -> Check:
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        return Check(name, "FAIL", f"{name} {directory}: {words_of(error)}", f"ls -ld {directory}")
    return Check(name, "ok", f"{name} {directory}")


def _acker_port() -> Checks:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        detail = f"acker: cannot listen on 127.0.0.1: {words_of(error)}"
        yield Check("acker port", "FAIL", detail, "is loop-back up?  ip addr show lo")
    else:
        yield Check("acker port", "ok", "the acker can listen on 127.0.0.1")


def _topo_toml(project: Project) -> Checks:
    if project.path:
        yield Check("topo.toml", "ok", f"topo.toml: {project.path}")
    else:
        detail = f"topo.toml: none from {Path.cwd()} upwards; using {project.environment.master}"
        yield Check("topo.toml", "skip", detail)
