"""The length of property tests, set before their modules are imported (`tests/tiers.py`).

TOPO_TEST_EXAMPLES=20 makes them twenty times as long as `--all` does, on new input.
"""

from __future__ import annotations

from hypothesis import settings

_factor = 1.0


def set_factor(factor: float) -> None:
    """Make tests that are defined from now on this many times as long as the full ones."""
    global _factor
    _factor = factor


def scaled(count: int, *, least: int = 1) -> int:
    """Return how many of `count` examples, messages or turns this run has."""
    return max(least, int(count * _factor))


def seeds(count: int) -> range:
    """Return the seeds of this run, for a test that the full one runs with `count` of them."""
    return range(scaled(count))


def examples(count: int, *, steps: int = 50) -> settings:
    """Settings for `count` examples of the full run, of `steps` steps if they have steps."""
    return settings(max_examples=scaled(count), stateful_step_count=steps)
