"""The offenders of today: a rule that the code does not keep yet holds from its first day on.

`exceptions.toml` lists for each rule the modules that offend it, with the names that do or with
their number. A new offender fails the rule's test, and so does one that is listed and offends no
more: the lists only shrink. `python -m tests.architecture.exceptions` removes the latter; nothing
adds to them.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

FILE = Path(__file__).with_name("exceptions.toml")
COMMAND = "python -m tests.architecture.exceptions"
RULES = {
    "walls": "test_imports",
    "hidden cycles": "test_imports",
    "attributes of others": "test_attributes",
    "clock": "test_clock",
    "strict": "test_test_kit",
    "dead": "test_dead",
    "formats": "test_formats",
    "locals": "test_words",
    "class names": "test_words",
}
"""The test module of each rule; its function OFFENDERS[rule] names the offenders."""

Offenders: TypeAlias = Mapping[str, list[str] | int]
"""What offends a rule, by module: names, or how many."""

_HEAD = """\
# What offends the rules of tests/architecture today. The lists only shrink:
# `python -m tests.architecture.exceptions` removes what offends no more.
"""


@cache
def _all_listed() -> dict[str, Offenders]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def check(rule: str, offenders: Offenders) -> None:
    """Raise an error unless the offenders are the listed ones."""
    listed = _all_listed().get(rule, {})
    new, needless = beyond(offenders, listed), beyond(listed, offenders)
    assert not new, f"new offenders of the rule {rule!r}: {new}"
    assert not needless, f"these offend {rule!r} no more: {needless}; run `{COMMAND}`"


def beyond(some: Offenders, others: Offenders) -> dict[str, list[str] | int]:
    """Return what the one has and the other has not."""
    more: dict[str, list[str] | int] = {}
    for module, offence in some.items():
        other = others.get(module, 0)
        if isinstance(offence, int):
            surplus: list[str] | int = offence - (other if isinstance(other, int) else 0)
            if isinstance(surplus, int) and surplus <= 0:
                continue
        else:
            rest = Counter(offence) - Counter(other if isinstance(other, list) else [])
            surplus = sorted(rest.elements())
        if surplus:
            more[module] = surplus
    return more


def common(some: Offenders, others: Offenders) -> Offenders:
    """Return what both have."""
    both: dict[str, list[str] | int] = {}
    for module, offence in some.items():
        other = others.get(module, 0)
        if isinstance(offence, int) and isinstance(other, int):
            both[module] = min(offence, other)
        elif isinstance(offence, list) and isinstance(other, list):
            both[module] = sorted((Counter(offence) & Counter(other)).elements())
    return {module: offence for module, offence in both.items() if offence}


def document(rules: Mapping[str, Offenders]) -> str:
    """Return the text of the file."""
    return "\n".join([_HEAD, *(_table(rule, rules[rule]) for rule in rules)])


def _table(rule: str, offenders: Offenders) -> str:
    lines: Iterable[str] = (f'"{m}" = {json.dumps(offenders[m])}' for m in sorted(offenders))
    return "\n".join([f'["{rule}"]', *lines, ""])


def main() -> None:
    """Write the file without the exceptions that are needed no more."""
    listed = _all_listed()
    rules: dict[str, Offenders] = {}
    for rule, module in RULES.items():
        offenders = import_module(f"tests.architecture.{module}").OFFENDERS[rule]()
        rules[rule] = common(listed.get(rule, {}), offenders)
    FILE.write_text(document(rules), encoding="utf-8")


if __name__ == "__main__":
    main()
