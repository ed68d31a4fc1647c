"""Names what components require and is not installed, before the first batch.

A component says `requires = ("confluent_kafka>=2.6",)`: distributions by name, with the least
release that will do. Topologies are built where clients need not be; whoever runs one looks first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

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
    for extra, needs in _extras().items():
        if set(names) <= needs:
            return f"pip install 'topo[{extra}]'"
    return f"pip install {' '.join(names)}"


@cache
def _extras() -> dict[str, set[str]]:
    """Return the distributions of each of topo's extras, the smallest extras first."""
    found: dict[str, set[str]] = {}
    try:
        listed = requires("topo") or []
    except PackageNotFoundError:
        return {}
    for line in listed:
        match = re.search(r"""extra\s*==\s*['"]([^'"]+)['"]""", line)
        name = re.match(r"[A-Za-z0-9._-]+", line)
        if match and name:
            found.setdefault(match.group(1), set()).add(_normal(name.group()))
    return dict(sorted(found.items(), key=lambda item: (len(item[1]), item[0])))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])
