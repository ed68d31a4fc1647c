"""The length of property tests: TOPO_TEST_EXAMPLES=20 makes them twenty times as long."""

from __future__ import annotations

import os

from hypothesis import settings

FACTOR = float(os.environ.get("TOPO_TEST_EXAMPLES", "1"))


def examples(count: int, *, steps: int = 50) -> settings:
    """Settings for `count` examples of the ordinary run, of `steps` steps if they have steps."""
    return settings(max_examples=max(1, int(count * FACTOR)), stateful_step_count=steps)
