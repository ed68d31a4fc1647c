"""The problems of YAML files: what kind, where to the column, a sentence, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from topo.errors import InvalidTopologyError, Problem


@dataclass(frozen=True)
class Place:
    """A place in a file, counted from 1."""

    file: str
    line: int
    column: int
    text: str = field(default="", compare=False)
    """The line."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class FluxError(InvalidTopologyError):
    """All problems of a topology in YAML; `problems` lists them, with their places."""

    def __init__(self, file: str, problems: Iterable[Problem], excerpts: Iterable[str]) -> None:
        listed = list(problems)
        super().__init__(listed)
        count = "a problem" if len(listed) == 1 else f"{len(listed)} problems"
        lines = [f"{file} has {count}:"]
        for problem, excerpt in zip(listed, excerpts, strict=True):
            lines.append(f"{problem.where}: {problem}")
            lines += [f"  {excerpt}"] if excerpt else []
        self.message = "\n  ".join(lines)
        self.args = (self.message,)


class Problems:
    """The problems of a file and of what it includes, in order of their discovery."""

    def __init__(self) -> None:
        self._problems: list[tuple[Place, Problem]] = []

    def __bool__(self) -> bool:
        return bool(self._problems)

    def add(self, code: str, place: Place, message: str, hint: str = "") -> None:
        """Note a problem, unless it is noted."""
        problem = Problem(code, str(place), message, hint)
        if all(problem != other for _, other in self._problems):
            self._problems.append((place, problem))

    def error(self, file: str) -> FluxError:
        """Return the error of all problems: those of the file itself first, by line."""

        def order(noted: tuple[Place, Problem]) -> tuple[bool, str, int, int]:
            place, _ = noted
            return place.file != file, place.file, place.line, place.column

        ordered = sorted(self._problems, key=order)
        excerpts = (place.text.strip() for place, _ in ordered)
        return FluxError(file, [problem for _, problem in ordered], excerpts)
