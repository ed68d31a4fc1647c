"""Sums that values are taken away from: exact, also those of earlier days."""

from __future__ import annotations

import numpy as np

from topo.operators.aggregates.exact import Exact


def test_a_sum_of_numpys_floats_that_an_earlier_topo_saved_goes_on() -> None:
    total = Exact()
    saved = (2, 2, 0, np.float64(1.0) + np.float64(2.0), (0, 0), ())  # they were no floats to it
    changed = total.add(total.remove(saved, np.float64(1.0)), np.float64(5.0))
    assert total.total(changed) == 7.0
    infinite = total.add(total.remove(saved, np.float64(1.0)), np.float64("inf"))
    assert total.total(infinite) == float("inf")
