"""Patterns over streams: sequences of events, with gaps, loops, negations and time."""

from topo.patterns.chains import Match
from topo.patterns.pattern import any_order, either

__all__ = ["Match", "any_order", "either"]
