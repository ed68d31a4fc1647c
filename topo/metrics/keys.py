"""Keys of figures by label: of gauges and counters that components choose, and by input stream."""

from __future__ import annotations

import re

INPUT = "input"
"""Begins the keys of figures by input stream; their labels are component and stream."""
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
