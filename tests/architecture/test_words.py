"""The words of the code, as far as a script can judge them.

Readers judge docstrings. Here are phrases that have a plain word, classes whose names do not say
what they are, classes that share one, and local names that say only that something happened to a
thing: `found` for the record that was found. `docs/glossary.md` lists the terms.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import chain

import pytest

from tests.architecture.exceptions import Offenders, check
from tests.architecture.source import ROOT, Function, Source, other_sources, topo_sources

BANNED = {
    r"topo's fault": "internal error: ...; please report this",
    r"\bno frame\b": "invalid frame",
    r"\ba frame of format\b": "unsupported frame format N (this topo reads M)",
    r"\bsaved by what changed\b": "saved incrementally",
    r"\b(go|goes|going) on (from|with|without)\b": "resume, continue",
    r"\bin the way\b": "block",
    r"\bwhat is wrong with\b": "the errors of",
    r"\bhasten": "speed up",
}
"""Phrases that the code of topo does not use, and what to write instead."""

PARTICIPLES = {
    "Begun", "Carried", "Commanded", "Explained", "Followed", "Found", "Given", "Kept", "Known",
    "Left", "Lost", "Made", "Opened", "Placed", "Said", "Stored",
}  # fmt: skip
"""Names of classes that do not say what a thing is."""

PUBLIC = {
    "Bolt", "Grouping", "Record", "Spout", "Stream", "Topology", "Tuple", "Window",
}  # fmt: skip
"""Names of classes that users import from several rooms: `topo.streamparse` has those of
streamparse, programs of streams have streams, windows and records of their own, and connectors hand
out records."""


LOCALS = {
    "asked", "begun", "found", "given", "gone", "heard", "kept", "known", "made", "meant", "one",
    "owed", "said", "seen", "shown", "taken", "told", "wanted",
}  # fmt: skip
"""Names of variables and parameters that do not say what a thing is."""

_BANNED = re.compile("|".join(BANNED), re.IGNORECASE)


def vague_locals(sources: Iterable[Source]) -> Offenders:
    """Return how many variables and parameters of a module have one of those names."""
    counts = {source.place: sum(1 for _ in _vague(source)) for source in sources}
    return {place: count for place, count in counts.items() if count}


def _vague(source: Source) -> Iterator[str]:
    """Yield each such name once a function."""
    for function in chain(source.functions(), source.every(ast.Lambda)):
        names = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
        yield from (names | set(_stored(function))) & LOCALS


def _stored(function: ast.AST) -> Iterator[str]:
    """Yield the variables of a function, without those of functions in it."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, Function | ast.Lambda):
            yield from _stored(node)


def banned_phrases(source: Source) -> list[str]:
    return [
        f"{source.place}:{number}: {line.strip()}   (write: {better})"
        for number, line in enumerate(source.text.splitlines(), 1)
        if _BANNED.search(line)
        for phrase, better in BANNED.items()
        if re.search(phrase, line, re.IGNORECASE)
    ]


def participles(source: Source) -> list[str]:
    names = (cls.name for cls in source.every(ast.ClassDef))
    return [f"{source.place}: {name}" for name in names if name.strip("_") in PARTICIPLES]


def shared_names(sources: Iterable[Source]) -> Offenders:
    """Return the modules that have a class of each name that several have; private ones may."""
    places: dict[str, list[str]] = {}
    for source in sources:
        for statement in source.tree.body:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                places.setdefault(statement.name, []).append(source.place)
    return {name: sorted(of) for name, of in places.items() if len(of) > 1 and name not in PUBLIC}


def raw_system_errors(source: Source) -> list[str]:
    return [source.place for node in source.every(ast.Attribute) if node.attr == "strerror"]


OFFENDERS = {
    "locals": lambda: vague_locals(topo_sources()),
    "class names": lambda: shared_names(topo_sources()),
}


def test_two_classes_are_not_called_the_same() -> None:
    check("class names", OFFENDERS["class names"]())


def test_a_name_of_two_classes_is_found_with_their_modules() -> None:
    sources = [
        Source("a.py", "class Rules: ...\nclass _Own: ...\nclass Stream: ..."),
        Source("b.py", "class Rules: ...\nclass _Own: ...\nclass Stream: ..."),
        Source("c.py", "class Other:\n    class Rules: ..."),
    ]
    assert shared_names(sources) == {"Rules": ["a.py", "b.py"]}


def test_a_variable_is_named_after_what_it_is() -> None:
    check("locals", OFFENDERS["locals"]())


def test_what_the_system_refused_is_told_by_words_of_alone() -> None:
    assert [place for source in topo_sources() for place in raw_system_errors(source)] == []


def test_a_class_is_named_by_a_noun() -> None:
    sources = [*topo_sources(), *other_sources("benchmarks")]
    assert [place for source in sources for place in participles(source)] == []


def test_plain_words_instead_of_banned_phrases() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    sources = [
        *topo_sources(),
        *other_sources("benchmarks"),
        *other_sources("examples"),
        *(Source(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in pages),
    ]
    assert [place for source in sources for place in banned_phrases(source)] == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (raw_system_errors, 'print(f"cannot write: {error.strerror}")\n'),
        (participles, "class _Found:\n    pass\n"),
        (banned_phrases, 'raise ValueError("40 bytes that are no frame")\n'),
    ],
)
def test_each_rule_finds_its_mistake(rule, code) -> None:  # type: ignore[no-untyped-def]
    assert len(rule(Source("module.py", code))) == 1


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("def f():\n    found = g()\n    found = h(found)", 1),
        ("def f(found, *, made=None): ...", 2),
        ("def f():\n    for known in g(): pass\n    with h() as told: pass", 2),
        ("def f():\n    if (asked := g()): return [said for said in asked]", 2),
        ("def f():\n    def g(): found = 1", 1),
        ("f = lambda one: one", 1),
        ("def f():\n    self.found = record.made = row", 0),
        ("found = 1", 0),
    ],
)
def test_a_vague_name_counts_once_a_function(code: str, count: int) -> None:
    assert vague_locals([Source("a.py", code)]) == ({"a.py": count} if count else {})
