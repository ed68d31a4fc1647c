"""Keyed state: a mutable mapping that knows which of its keys changed."""

from __future__ import annotations

from collections.abc import MutableMapping
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

from topo import KeyValueState


def test_it_is_a_mutable_mapping() -> None:
    state: KeyValueState[str, int] = KeyValueState({"a": 1})
    assert isinstance(state, MutableMapping)
    state["b"] = 2
    state.update(c=3)
    assert state.setdefault("d", 4) == 4
    assert dict(state) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert (len(state), "a" in state, "z" in state, list(state)) == (4, True, False, [*"abcd"])
    del state["a"]
    assert state.pop("b") == 2
    assert state.pop("z", None) is None
    assert sorted(state.items()) == [("c", 3), ("d", 4)]
    assert state == {"c": 3, "d": 4}
    assert repr(state) == "KeyValueState({'c': 3, 'd': 4})"
    with pytest.raises(KeyError):
        state["a"]
    with pytest.raises(KeyError):
        del state["a"]
    state.clear()
    assert not state


def test_storms_names() -> None:
    state: KeyValueState[str, int] = KeyValueState()
    state.put("a", 1)
    assert state.get("a") == 1
    assert state.get("b") is None
    assert state.get("b", 7) == 7
    assert state.delete("a") == 1
    assert state.delete("a") is None


def changed(state: KeyValueState[Any, Any]) -> set[Any]:
    return set(state.changed_keys())


def test_writes_and_deletes_count_as_changes() -> None:
    state: KeyValueState[str, int] = KeyValueState({"a": 1, "b": 2})
    assert changed(state) == set()
    state["a"] = 1
    state.put("c", 3)
    del state["b"]
    state.setdefault("d", 1)
    state.setdefault("a", 9)
    assert changed(state) == {"a", "b", "c", "d"}
    assert changed(state) == set()
    state.clear()
    assert changed(state) == {"a", "c", "d"}


@pytest.mark.parametrize(
    "value",
    [
        *(1, 1.5, "x", b"x", True, None, 1j, np.True_, np.float32(1), np.datetime64("2020-01-01")),
        *(Path("a"), PurePosixPath("a"), ip_address("::1"), ip_network("10.0.0.0/8")),
    ],
)
def test_reading_what_cannot_change_is_no_change(value: Any) -> None:
    state: KeyValueState[str, Any] = KeyValueState({"a": value})
    assert state["a"] == state.get("a") == value
    assert list(state.values()) == [value]
    assert changed(state) == set()


@pytest.mark.parametrize(
    "read",
    [
        lambda s: s["a"],
        lambda s: s.get("a"),
        lambda s: s.setdefault("a", []),
        lambda s: list(s.values()),
        lambda s: list(s.items()),
        lambda s: s.pop("a"),
    ],
)
def test_a_mutable_value_that_was_read_counts_as_changed(read: Any) -> None:
    state: KeyValueState[str, list[int]] = KeyValueState({"a": [1]})
    read(state)
    assert changed(state) == {"a"}


def test_keys_and_length_and_membership_change_nothing() -> None:
    state: KeyValueState[str, list[int]] = KeyValueState({"a": [1]})
    assert (list(state), list(state.keys()), len(state), "a" in state) == (["a"], ["a"], 1, True)
    assert state.get("z") is None
    assert changed(state) == set()


def test_a_row_of_a_numpy_array_may_change() -> None:
    row = np.zeros(1, dtype=[("a", int)])[0]
    state: KeyValueState[str, Any] = KeyValueState({"a": row})
    assert state["a"] is row
    assert changed(state) == {"a"}
