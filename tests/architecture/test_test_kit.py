"""The test kit runs what production runs: a check of it may look, and not choose another way.

In tests a task is `strict`: it copies what is emitted, to find what is changed afterwards. Each
place that asks for that may be a way that only one of both takes. The laws of
`tests/property/test_rewriting_laws.py` and `test_column_laws.py` run both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tests.architecture.exceptions import Offenders, check
from tests.architecture.source import Source, topo_sources


def asks_for_strict(sources: Iterable[Source]) -> Offenders:
    """Return how often a module asks whether it is run by the test kit."""
    counts = {
        source.place: sum(
            1
            for node in source.every(ast.Attribute)
            if node.attr == "strict" and isinstance(node.ctx, ast.Load)
        )
        for source in sources
        if source.place.startswith(("runtime/", "engine/"))
    }
    return {place: count for place, count in counts.items() if count}


OFFENDERS = {"strict": lambda: asks_for_strict(topo_sources())}


def test_the_test_kit_takes_no_way_of_its_own() -> None:
    check("strict", OFFENDERS["strict"]())


def test_a_way_of_its_own_is_seen() -> None:
    code = "def f(self):\n    if self.outlet.strict: return\n    self.strict = zip(a, strict=True)"
    assert asks_for_strict([Source("runtime/a.py", code)]) == {"runtime/a.py": 1}
