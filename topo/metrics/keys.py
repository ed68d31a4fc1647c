"""Keys of the gauges and counters that components choose: a name, and labels if it has any."""

from __future__ import annotations

import re

_LABEL = re.compile(r'([^\W\d]\w*)="((?:[^"\\]|\\.)*)"(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")


def name_and_labels(key: str) -> tuple[str, dict[str, str]]:
    """Return the parts of a key such as `lag{partition="3",topic="clicks"}`."""
    name, brace, rest = key.partition("{")
    if not brace or not rest.endswith("}"):
        return key, {}
    return name, {label: _unescaped(value) for label, value in _LABEL.findall(rest[:-1])}


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
