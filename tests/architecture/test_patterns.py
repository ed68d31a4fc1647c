"""No regular expression of topo tries all ways to read a text: a name may be anybody's."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import topo

_LIMIT_SECS = 30.0
_TRY = """
import re, sys
for line in sys.stdin:
    pattern = re.compile(eval(line))
    for unit in ("1", "a", ".", "-", " ", "1.", ".1", "a1", "a.", "-1", "a ", "1 ", "%", "(", "'"):
        for end in ("", "x", "!", "1", "\\n", "\\0"):
            for start in ("", "-", ".", "'"):
                text = start + (unit * 253)[:253] + end
                pattern.search(text)
                pattern.fullmatch(text)
"""


def patterns() -> Iterator[tuple[str, str]]:
    """Yield each literal pattern in topo, with its place."""
    root = Path(topo.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            by_map = isinstance(node.func, ast.Name) and node.func.id == "map"
            given = node.args[1] if by_map and ast.unparse(node.args[0]) == "re.compile" else None
            if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "re":
                given = node.args[0] if node.args else None
            literals = given.elts if isinstance(given, ast.Tuple) else [given]
            for literal in literals:
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                    yield f"{path.relative_to(root)}:{literal.lineno}", literal.value


def takes_long(listed: list[str], secs: float) -> bool:
    text = "\n".join(map(repr, listed))
    try:
        subprocess.run(
            [sys.executable, "-c", _TRY], input=text, text=True, check=True, timeout=secs
        )
    except subprocess.TimeoutExpired:
        return True
    return False


def test_patterns_are_linear_in_long_names() -> None:
    listed = list(patterns())
    assert len(listed) > 30
    if takes_long([pattern for _, pattern in listed], _LIMIT_SECS):  # which one?
        slow = [where for where, pattern in listed if takes_long([pattern], 2.0)]
        pytest.fail(f"these take too long for a name of 255 characters: {slow}")


def test_a_pattern_with_many_ways_to_read_the_same_digits_takes_long() -> None:
    assert takes_long([r"(\.\d+|[-.]\d{8}([-T_.]?\d+)*|\.(gz|bz2|xz|zst))+$"], 0.5)
