"""Prints the lowest version of each package that pyproject.toml allows, one requirement a line.

    python .ci/lowest.py EXTRA ...

The core's packages and those of the extras are printed, those that an extra takes from another one
too. A package without a lowest version is an error, since nobody would know what was tried.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

FLOOR = re.compile(r"([A-Za-z0-9_.-]+)(?:\[([A-Za-z0-9_,. -]+)\])?\s*(?:>=|==)\s*([0-9.]+)")
OWN_EXTRAS = re.compile(r"([A-Za-z0-9_.-]+)\[([A-Za-z0-9_,. -]+)\]$")


def required(project: Any, extras: Sequence[str]) -> Iterator[str]:
    """Yield the requirements of the core and of extras, and of the extras that those name."""
    yield from project["dependencies"]
    waiting, seen = [*extras], set()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for line in project["optional-dependencies"][extra]:
            own = OWN_EXTRAS.match(line)
            if own and own[1] == project["name"]:
                waiting += re.split(r"\s*,\s*", own[2])
            else:
                yield line


def lowest(line: str) -> str:
    """Return a requirement of the lowest version that a requirement allows."""
    match = FLOOR.match(line)
    if match is None:
        raise SystemExit(f"pyproject.toml: {line!r} names no lowest version")
    name, extras, version = match.groups()
    return f"{name}[{extras}]=={version}" if extras else f"{name}=={version}"


def highest(lines: Iterable[str]) -> list[str]:
    """Return one line a package: an extra may ask for more of it than the core does."""
    by_name: dict[str, str] = {}
    for line in sorted(lines, key=order):
        by_name[line.partition("==")[0].lower()] = line
    return sorted(by_name.values())


def order(line: str) -> list[int]:
    return [int(part) for part in line.partition("==")[2].split(".") if part]


def main() -> None:
    with open("pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    lines = required(project, [extra for extra in sys.argv[1:] if extra in extras])
    print(*highest(map(lowest, lines)), sep="\n")


if __name__ == "__main__":
    main()
