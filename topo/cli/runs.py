"""The base of commands for running topologies: finding one by name, its figures and errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from topo.cli.failures import STATUS, CommandError, environment_error, usage_error
from topo.cli.output import Output, short_number
from topo.config.project import Project, load_project
from topo.errors import did_you_mean
from topo.manage.outside import drop
from topo.manage.records import RunRecord
from topo.manage.registry import Registry
from topo.topology.model import Topology

F = TypeVar("F", bound=Callable[..., Any])


class Runs:
    """The runs of the chosen environment."""

    def __init__(self, out: Output) -> None:
        self.project: Project = load_project(out.env)
        self.env = out.env
        home = self.project.environment.registry
        if out.env and not home.exists():
            raise environment_error(
                f"cannot read registry {home} of env {out.env!r}: no such directory",
                code="registry",
                hint=f"topo doctor --env {out.env}",
            )
        self.registry = Registry(home)

    def find(self, name: str, command: str) -> RunRecord:
        """Return the run that the user named."""
        run = self.registry.latest(name)
        if run:
            return run
        known = self.registry.runs()
        names = sorted({run.name for run in known})
        if name.endswith(".py") or os.path.isfile(name):
            live = [run.name for run in known if not run.over]
            hint = f"topo {command} {live[0]}" if len(live) == 1 else "topo list"
            raise usage_error(
                f"{name!r} is a file; {command} takes the name of a running topology", hint=hint
            )
        near = did_you_mean(name, names)
        raise CommandError(
            STATUS,
            f"no topology {name!r}",
            code="unknown-topology",
            hint=f"{near} topo list" if near else "topo list --all",
        )


def check_component(run: RunRecord, component: str | None) -> None:
    """Raise an error if the topology has no such component."""
    if component is None:
        return
    topology = Topology.from_bytes((run.directory / "topology.pb").read_bytes())
    known = list(topology.components)
    if component not in known:
        near, it_has = did_you_mean(component, known), f"it has: {', '.join(known)}"
        raise usage_error(
            f"{run.name} has no component {component!r}",
            hint=f"{near} {it_has}" if near else it_has,
        )


class Unlettered(click.Option):
    """An option whose help does not show its letter `-n`, which is a name's elsewhere."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names, text = super().get_help_record(ctx) or ("", "")
        return names.removeprefix("-n, "), text


def last_option(default: int, least: int = 0) -> Callable[[F], F]:
    """Add `--last N`, passed as `last`. `-n`, which is a name elsewhere, is its old spelling."""
    return click.option(
        "-n",
        "--last",
        cls=Unlettered,
        type=click.IntRange(least),
        default=default,
        show_default=True,
        metavar="N",
        help="Show the last N only.",
    )


def drop_outside(out: Output, run: RunRecord) -> list[str]:
    """Drop what the topology has left outside; tell what was dropped, and what could not be."""
    dropped = []
    for outside in drop(run):
        for line in outside.lines:
            out.note(f"{run.name}: dropped {line}")
        if outside.error:
            out.note(
                f"{run.name}: what {outside.component!r} has left outside is still there: "
                f"{outside.error}"
            )
        dropped += outside.lines
    return dropped


# Words for figures


def restarted(times: int, why: str, reason: str = "") -> str:
    """Return "restarted 2 times (why the last time)", without what `reason` has; "" for 0 times."""
    if not times:
        return ""
    because = f" ({why})" if why and why not in reason else ""
    return f"restarted {'once' if times == 1 else f'{times} times'}{because}"


def duration(secs: float) -> str:
    """8 s, 12m, 3h 02m, 2d 04h."""
    minutes, hours, days = int(secs // 60), int(secs // 3600), int(secs // 86400)
    if minutes < 1:
        return f"{secs:.0f} s"
    if hours < 1:
        return f"{minutes}m"
    if days < 1:
        return f"{hours}h {minutes % 60:02}m"
    return f"{days}d {hours % 24:02}h"


def count(value: float | None) -> str:
    """12,040 up to a hundred thousand, 71.2 M beyond; "-" for what does not apply."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value < 100_000 else short_number(value)


def size(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def parse_duration(text: str, option: str) -> float:
    """Seconds of "30s", "10m", "2h" or "1d"."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], text[-1:]
    if unit in units and number.replace(".", "", 1).isdigit():
        return float(number) * units[unit]
    raise usage_error(f"{option} takes a duration such as 30s, 10m, 2h; got {text!r}", at=option)
