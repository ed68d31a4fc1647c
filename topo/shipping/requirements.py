"""Names what components require and is not installed, before the first batch.

A component says `requires = ("confluent_kafka>=2.6",)`: distributions by name, with the least
release that will do. Topologies are built where clients need not be; whoever runs one looks first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from topo.distribution import extra_with, install_command
from topo.errors import ComponentError, MissingExtra

if TYPE_CHECKING:
    from topo.topology.model import Topology

_FORM = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\s*>=\s*([0-9][0-9A-Za-z.]*))?")

Versions = Callable[[str], str]
"""Gives the installed release of a distribution; raises PackageNotFoundError."""


def parse_requirement(text: str) -> tuple[str, str]:
    """Return the name and the least release, "" if any will do; raise ComponentError."""
    match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ComponentError(
            f"{text!r} in `requires` is no requirement",
            hint='write "name" or "name>=1.2"',
        )
    return match.group(1), match.group(2) or ""


def unmet(requirements: Iterable[str], versions: Versions = version) -> list[str]:
    """Return a sentence for each requirement that is not met."""
    told = []
    for text in requirements:
        name, least = parse_requirement(text)
        try:
            found = versions(name)
        except PackageNotFoundError:
            told.append(f"{text} is not installed")
            continue
        if least and _order(found) < _order(least):
            told.append(f"{text} is needed, {found} is installed")
    return told


def check_requirements(topology: Topology, versions: Versions = version, where: str = "") -> None:
    """Raise MissingExtra, naming the component, if something that one requires is missing."""
    for component in topology.components.values():
        told = unmet(component.requires, versions)
        if told:
            place = f" on {where}" if where else ""
            raise MissingExtra(
                f"{component.kind} {component.id!r} ({component.class_name}): "
                f"{'; '.join(told)}{place}",
                hint=remedy(component.requires),
            )


def remedy(requirements: Iterable[str]) -> str:
    """Return the command that installs the requirements, by topo's own extra if one has them."""
    names = [_normal(parse_requirement(text)[0]) for text in requirements]
    extra = extra_with(names)
    return install_command(extra) if extra else f"pip install {' '.join(names)}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])
