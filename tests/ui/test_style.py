"""What the pages look like, as far as it can be computed: contrast as WCAG measures it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import topo.ui

STYLE = (Path(topo.ui.__file__).with_name("static") / "style.css").read_text()
LEAST = 4.5
"""Of text that is not large (WCAG 2, AA)."""


def themes() -> dict[str, dict[str, str]]:
    """Return the colours of the light and the dark theme by name."""
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\n\s*\}", STYLE, re.DOTALL)
    )
    return {"light": light, "dark": light | dark}


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_badges_times_and_drawings_can_be_read(theme: str) -> None:
    colors = themes()[theme]
    pairs = re.findall(
        r"\.badge\.\w+[^{]*\{ background: var\(--([\w-]+)\); color: var\(--([\w-]+)\)", STYLE
    )
    pairs += [("panel", name) for name in re.findall(r"\.log [^{]*\{ color: var\(--(\w+)\)", STYLE)]
    assert len(pairs) >= 7
    boxes = re.findall(r"rect\.box \{ fill: var\(--([\w-]+)\)", STYLE)
    assert len(boxes) >= 4
    texts = re.findall(
        r"\.(axis|level-name|edge text|node text)[^{]*\{[^}]*fill: var\(--([\w-]+)\)", STYLE
    )
    assert {kind for kind, _ in texts} == {"axis", "level-name", "edge text", "node text"}
    pairs += [("panel", name) for _, name in texts]
    pairs += [(box, name) for box in boxes for kind, name in texts if kind == "node text"]
    weak = {pair: contrast(colors[pair[0]], colors[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < LEAST} == {}
