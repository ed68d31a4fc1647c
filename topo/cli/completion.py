"""Completion of what a user types: names of topologies and components, and files.

Whatever is wrong (no registry, a damaged run) completes to nothing: a shell that waits for an
answer has no place for an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from topo.cli.output import Output
from topo.config.project import load_project
from topo.manage.registry import Registry
from topo.topology.model import Topology

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _quiet(values: Callable[[click.Context], Iterable[str]]) -> Complete:
    def complete(
        ctx: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            candidates = sorted(set(values(ctx)))
        except Exception:
            return []
        return [CompletionItem(value) for value in candidates if value.startswith(incomplete)]

    return complete


@_quiet
def live_names(ctx: click.Context) -> Iterable[str]:
    """Return the names of running topologies."""
    return [run.name for run in _registry(ctx).runs(all_of_them=False)]


@_quiet
def all_names(ctx: click.Context) -> Iterable[str]:
    """Return the names of all topologies that are known, those that are over included."""
    return [run.name for run in _registry(ctx).runs()]


@_quiet
def components(ctx: click.Context) -> Iterable[str]:
    """Return the components of the topology that was named before."""
    run = _registry(ctx).latest(ctx.params["name"])
    if run is None:
        return []
    return Topology.from_bytes((run.directory / "topology.pb").read_bytes()).components


def files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def directories(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def _registry(ctx: click.Context) -> Registry:
    out = ctx.find_object(Output)
    project = load_project(out.env if out and out.env else os.environ.get("TOPO_ENV"))
    return Registry(project.environment.registry)
