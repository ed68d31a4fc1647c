"""Placeholders: `${name}`, `${name[1]}`, `${ENV-NAME}`.

Each is marked in the text by private characters before that is parsed, as many as it has itself, so
that places stay right and braces of flow style do not matter. It is filled in scalars afterwards: a
value cannot become YAML, and what stands in a comment is left alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from topo.errors import ConfigError, did_you_mean, words_of

_PLACEHOLDER = re.compile(r"\$\{([^${}\n]+)\}")
_INDEXED = re.compile(r"(.+?)\[(\d+)\]")
_PRIVATE = range(0xE000, 0xF8FF)
_ENVIRONMENT = "ENV-"


class Unfilled(Exception):
    """Nothing fills a placeholder."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class Placeholders:
    """The placeholders of one text, by the marks that stand for them."""

    def __init__(self, text: str) -> None:
        present = set(text)
        free = (chr(code) for code in _PRIVATE if chr(code) not in present)
        self._open, self._close, self._fill = next(free), next(free), next(free)
        self._names: list[str] = []
        self.text = _PLACEHOLDER.sub(self._mark, text)
        """The text with the marks in their places."""
        self._marked = re.compile(f"{self._open}(.+?){self._close}")

    def _mark(self, match: re.Match[str]) -> str:
        self._names.append(match[1])
        number = chr(0xF0000 + len(self._names) - 1)
        return self._open + number.ljust(len(match[0]) - 2, self._fill) + self._close

    def fill(self, text: str, is_quoted: bool, value_of: Callable[[str], Any]) -> Any:
        """Return a scalar with its placeholders filled.

        One that is all of an unquoted scalar keeps the kind of its value; others are text.
        """
        whole = self._marked.fullmatch(text)
        if whole and not is_quoted:
            return value_of(self._name(whole))
        return self._marked.sub(lambda match: as_text(value_of(self._name(match))), text)

    def is_in(self, text: str) -> bool:
        """Return True if a scalar has a placeholder."""
        return self._open in text

    def shown(self, text: str) -> str:
        """Return a text as it is in the file."""
        return self._marked.sub(lambda match: f"${{{self._name(match)}}}", text)

    def _name(self, match: re.Match[str]) -> str:
        return self._names[ord(match[1][0]) - 0xF0000]


class Values:
    """What fills placeholders: properties, and the environment."""

    def __init__(
        self,
        properties: Mapping[str, str],
        parse: Callable[[str], Any],
        has_files: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._properties = properties
        self._parse = parse
        self._has_files = has_files
        self._environment = os.environ if environment is None else environment

    def get(self, name: str) -> Any:
        """Return the value of a placeholder, of its own kind; raise Unfilled if there is none."""
        if name.startswith(_ENVIRONMENT):
            return self._of_environment(name.removeprefix(_ENVIRONMENT))
        if name in self._properties:
            return self._parsed(self._properties[name])
        indexed = _INDEXED.fullmatch(name)
        if indexed and indexed[1] in self._properties:
            return self._element(indexed[1], int(indexed[2]))
        hint = did_you_mean(name, self._properties)
        if not self._has_files:
            hint = "--filter FILE gives a file of properties"
        raise Unfilled(f"nothing fills ${{{name}}}", hint or "give it in a file of --filter")

    def _of_environment(self, variable: str) -> Any:
        value = self._environment.get(variable)
        if value is None:
            raise Unfilled(f"the environment has no variable {variable!r}", "set it")
        return self._parsed(value)

    def _element(self, name: str, index: int) -> Any:
        values = self._parsed(self._properties[name])
        if not isinstance(values, list) or index >= len(values):
            count = f"has {len(values)} elements" if isinstance(values, list) else "is no list"
            raise Unfilled(f"nothing fills ${{{name}[{index}]}}", f"{name} {count}")
        return values[index]

    def _parsed(self, text: str) -> Any:
        return self._parse(text)


def as_text(value: Any) -> str:
    """Return a value within a text: as YAML writes it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_properties(path: str | Path) -> dict[str, str]:
    """Return the properties of a file in Java's format."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = words_of(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: {why}", code="usage", at="--filter") from None
    return properties_of(text)


_SEPARATOR = re.compile(r"(?:\\.|[^\\\s=:])*(\s*[=:]\s*|\s+|$)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SPECIAL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def properties_of(text: str) -> dict[str, str]:
    """Return the properties of a text: `key=value`, `key: value` or `key value` a line."""
    properties = {}
    for line in _logical_lines(text):
        match = _SEPARATOR.match(line)
        assert match is not None, "it may be empty"
        properties[_unescaped(line[: match.start(1)])] = _unescaped(line[match.end(1) :])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines that say something; one that ends with an odd backslash continues."""
    waiting = ""
    for line in text.splitlines():
        part = line.lstrip()
        if not waiting and (not part or part[0] in "#!"):
            continue
        waiting += part
        if (len(waiting) - len(waiting.rstrip("\\"))) % 2:
            waiting = waiting[:-1]
            continue
        yield waiting
        waiting = ""
    if waiting:
        yield waiting


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _SPECIAL.get(match[2], match[2])

    return _ESCAPE.sub(character, text)
