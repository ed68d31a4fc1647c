"""Keys of gauges and counters: what a context writes is read back."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.context import figure_key
from topo.metrics.keys import name_and_labels

IDENTIFIERS = st.text(string.ascii_letters + "_", min_size=1, max_size=8)


@given(IDENTIFIERS, st.dictionaries(IDENTIFIERS, st.text(max_size=8), max_size=3))
def test_a_key_is_read_back(name: str, labels: dict[str, str]) -> None:
    assert name_and_labels(figure_key(name, labels)) == (name, labels)


@pytest.mark.parametrize("key", ["", "lag{", "lag{x", "{", '{="1"}', "a b"])
def test_a_damaged_key_is_no_error(key: str) -> None:
    assert name_and_labels(key)[1] == {}
