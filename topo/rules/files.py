"""Rules files: TOML, one `[[rule]]` with the keys of `Rule` each.

    [[rule]]
    name = "brute force"
    when = "group == 'generalbruteforce'"
    by = "dst"
    having = "count() >= 20"
    within = "2m"
    emit = { severity = "'high'", hits = "count()" }

A file has all its mistakes told at once, each with its line. Python's parser of TOML knows no lines
of what it read, so they are looked for in the text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from topo.errors import RuleError, TopoError, did_you_mean, shown, words_of
from topo.rules.rule import Rule

_HEAD = re.compile(r"\s*\[\[\s*rule\s*\]\]")
MOST_BYTES = 16 << 20


def read_rules(path: str | Path) -> list[Rule]:
    """Return the rules of a file; raise a RuleError that names all its mistakes."""
    rules, errors = checked_rules(path)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = "\n  ".join(f"{error.at}: {error.message}" for error in errors)
        raise RuleError(
            f"{path} has {len(errors)} mistakes:\n  {lines}", hint=f"topo rules check {path}"
        )
    return rules


def checked_rules(path: str | Path) -> tuple[list[Rule], list[RuleError]]:
    """Return the rules of a file, and an error for each of its mistakes."""
    try:
        data = Path(path).read_bytes()
        text = data.decode()
    except OSError as error:
        return [], [RuleError(f"rules file {str(path)!r}: {words_of(error)}", at=str(path))]
    except UnicodeDecodeError:
        return [], [RuleError(f"rules file {str(path)!r} is no text in UTF-8", at=str(path))]
    if len(data) > MOST_BYTES:
        return [], [RuleError(f"rules file {str(path)!r} has more than 16 MB", at=str(path))]
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        at = f"{path}:{line[1]}" if line else str(path)
        return [], [RuleError(f"no valid TOML: {error}", at=at)]
    return _rules_of(document, str(path), text)


def _rules_of(document: dict[str, Any], path: str, text: str) -> tuple[list[Rule], list[RuleError]]:
    rules: list[Rule] = []
    errors: list[RuleError] = []
    for key in document:
        if key != "rule":
            hint = did_you_mean(key, ["rule"]) or "each rule begins with [[rule]]"
            at = f"{path}:{_line_of(text.splitlines(), key)}"
            errors.append(RuleError(f"{shown(key)} is no part of a rules file", at=at, hint=hint))
    tables = document.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        errors.append(RuleError("rule is no list of tables", at=path, hint="write [[rule]]"))
        return rules, errors
    if not tables and not errors:
        errors.append(RuleError("there is no rule in it", at=path, hint="write [[rule]]"))
    names: set[str] = set()
    for table, (first, lines) in zip(tables, _blocks(text, len(tables)), strict=True):
        try:
            rule = _rule_of(table)
            if rule.name in names:
                raise RuleError(f"there are two rules {rule.name!r}", hint="names differ")
        except TopoError as error:
            line = first + _line_of(lines, _key_in(error.message, table)) - 1
            place = f"{path}:{line}"
            errors.append(RuleError(error.message, at=place, hint=error.hint, code=error.code))
            continue
        names.add(rule.name)
        rules.append(rule)
    return rules, errors


def _rule_of(table: dict[str, Any]) -> Rule:
    data = dict(table)
    if "name" not in data:
        raise RuleError("the rule has no name", hint='write name = "..."')
    return Rule.from_dict(data.pop("name"), data)


def _blocks(text: str, count: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line's number and the lines of each rule, as far as they can be told."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if _HEAD.match(line)]
    if len(heads) != count:  # in text of several lines, or written as rule = [...]
        yield from ((1, []) for _ in range(count))
        return
    for head, after in zip(heads, [*heads[1:], len(lines)], strict=False):
        yield head + 1, lines[head:after]


def _key_in(message: str, table: dict[str, Any]) -> str:
    """Return the key of a rule that a message is about, or ""."""
    for key in table:
        if re.search(rf"(, {re.escape(key)}\b|: {re.escape(key)} |'{re.escape(key)}')", message):
            return key
    return ""


def _line_of(lines: list[str], key: str) -> int:
    """Return the line, from 1, that gives a key its value; the first if there is none."""
    if key:
        for number, line in enumerate(lines, 1):
            if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.\]]", line) or re.match(
                rf"\s*\[+\s*{re.escape(key)}\s*\]+", line
            ):
                return number
    return 1
