"""Tuples are made anew for whoever keeps one, and only for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from topo.columns import LoopText
from topo.runtime.loops import (
    COLLECT,
    EXECUTE,
    EXECUTE_AND_KEEP,
    compiled_loop,
    compiled_loop_over_tuples,
    loop_over_values,
    refcounts_are_reliable,
)
from topo.tuples import SETTLED, Source, Tuple, tuple_class

CLS: Any = tuple_class(Source("words", "default", 1, ("word",)), basic=True)
LINKED: Any = tuple_class(Source("words", "default", 1, ("word",)), basic=False)
WORDS = ["a", "b", "c", "d"]


def run(execute: Callable[[Tuple], Any]) -> None:
    assert loop_over_values(CLS, EXECUTE, False, False)(iter(WORDS), execute) is None


def test_tuples_that_are_kept_stay_as_they_were() -> None:
    kept: list[Tuple] = []
    run(kept.append)
    assert [tup.word for tup in kept] == WORDS


def test_one_kept_of_several_stays_as_it_was() -> None:
    kept: list[Tuple] = []
    run(lambda tup: kept.append(tup) if tup.word == "b" else None)
    assert [tup.word for tup in kept] == ["b"]


def test_a_closure_keeps_its_tuple() -> None:
    later: list[Callable[[], str]] = []
    run(lambda tup: later.append(lambda: tup.word))
    assert [word() for word in later] == WORDS


def test_a_generator_that_is_not_finished_keeps_its_tuple() -> None:
    open_ones: list[Iterator[str]] = []

    def words(tup: Tuple) -> Iterator[str]:
        yield "first"
        yield tup.word

    def begin(tup: Tuple) -> None:
        generator = words(tup)
        next(generator)
        open_ones.append(generator)

    run(begin)
    assert [next(generator) for generator in open_ones] == WORDS


def test_what_a_generator_function_yields_may_be_the_tuple_itself() -> None:
    rows: list[Any] = []
    loop = loop_over_values(CLS, COLLECT, False, False)
    assert loop(iter(WORDS), lambda tup: (yield tup), extend=rows.extend) is None
    assert [tup.word for tup in rows] == WORDS


def test_the_error_of_a_tuple_comes_with_it_and_the_loop_goes_on_behind() -> None:
    def execute(tup: Tuple) -> None:
        if tup.word == "b":
            raise LookupError(tup.word)

    items = iter(WORDS)
    loop = loop_over_values(CLS, EXECUTE, False, False)
    stopped = loop(items, execute)
    assert stopped is not None
    tup, error = stopped
    assert tup is not None
    assert (tup.word, str(error)) == ("b", "b")
    seen: list[str] = []
    assert loop(items, lambda tup: seen.append(tup.word)) is None
    assert tup.word == "b"
    assert seen == ["c", "d"]


def test_what_is_neither_acked_nor_failed_is_kept_for_its_bolt() -> None:
    def execute(tup: Tuple) -> None:
        if tup.word != "c":
            tup._topo_link = SETTLED

    kept: list[Tuple] = []
    items = zip(WORDS, range(4), strict=True)
    loop = loop_over_values(LINKED, EXECUTE_AND_KEEP, True, False)
    assert loop(items, execute, keep=kept.append) is None
    assert [(tup.word, tup._topo_link) for tup in kept] == [("c", 2)]


def test_a_tuple_that_nobody_keeps_is_not_made_again() -> None:
    seen: set[int] = set()
    run(lambda tup: seen.add(id(tup)))
    assert len(seen) == 1


def test_the_line_of_an_error_is_read_alike_for_tuples_of_any_width() -> None:
    wide: Any = tuple_class(Source("wide", "default", 1, ("a", "b", "c")), basic=True)
    lines = {compiled_loop(EXECUTE, cls, False, False)[1] for cls in (CLS, wide)}
    assert len(lines) == 1


def test_where_references_cannot_be_told_every_tuple_is_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "getrefcount", lambda thing: 1)
    refcounts_are_reliable.cache_clear()
    loop_over_values.cache_clear()
    try:
        assert not refcounts_are_reliable()
        test_tuples_that_are_kept_stay_as_they_were()
    finally:
        refcounts_are_reliable.cache_clear()
        loop_over_values.cache_clear()


@pytest.mark.parametrize("reads", [[0], []])
def test_the_line_of_an_error_is_found_over_tuples_and_values(
    reads: list[int],
) -> None:
    seen: list[Any] = []
    lines = ["seen(tup)", "1 / (len(tup[0]) - 1)"]
    text = LoopText(lines, {"seen": seen.append}, reads, makes_tuple=True, start=["pass"])
    tuples = [CLS("a"), CLS("bc")]
    over_tuples = compiled_loop_over_tuples(text, False)
    over_values = compiled_loop(text, CLS, linked=False, marks=False)
    for (loop, first_line), items in ((over_tuples, iter(tuples)), (over_values, iter(["a"]))):
        stopped = loop(items)
        assert stopped is not None
        tup, error = stopped
        assert isinstance(error, ZeroDivisionError)
        assert error.__traceback__ is not None
        assert error.__traceback__.tb_lineno - first_line == 1
        assert tup is not None
        assert tup.word == "a"
        assert loop(items) is None
    assert [tup.word for tup in seen] == ["a", "bc", "a"]
