"""The words of the code, as far as a script can judge them.

A docstring says what a thing is or does: a function's begins with a verb ("Return the ..."), a
class's with a noun ("A state machine that ..."), an invariant is a predicate ("True iff ..."). A
docstring that begins with a question word does none of these. Some phrases have a plain word that
is used instead; `docs/glossary.md` lists the terms.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("topo", "benchmarks", "examples", "tests")

_QUESTION = re.compile(r"(What|Whether|How|Where|Who|When|Which|Why|That)\b")
_NOT_A_VERB = re.compile(r"(The|A|An|One|Those|These|Its?|All|By|From|With|Only|Also|Of)\b")
_PROPERTIES = {"property", "cached_property"}

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


def sources(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "_pb" not in path.parts and path != Path(__file__):
                yield path


def documented(path: Path) -> Iterator[tuple[int, ast.AST, str]]:
    """Yield line, node and docstring of everything in a file that has a docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, node, text


def is_property(node: ast.AST) -> bool:
    names = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", [])]
    return any(name.split(".")[-1] in _PROPERTIES for name in names)


def named(path: Path, line: int, text: str) -> str:
    return f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"


def question_words(path: Path) -> list[str]:
    return [named(path, line, text) for line, _, text in documented(path) if _QUESTION.match(text)]


def without_verb(path: Path) -> list[str]:
    return [
        named(path, line, text)
        for line, node, text in documented(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not is_property(node)
        and _NOT_A_VERB.match(text)
    ]


def banned_phrases(path: Path) -> list[str]:
    return [
        f"{named(path, number, line.strip())}   (write: {better})"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for phrase, better in BANNED.items()
        if re.search(phrase, line, re.IGNORECASE)
    ]


def participles(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return [named(path, c.lineno, c.name) for c in classes if c.name.strip("_") in PARTICIPLES]


def raw_system_errors(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [named(path, n, line.strip()) for n, line in enumerate(lines, 1) if ".strerror" in line]


def test_what_the_system_refused_is_told_by_words_of_alone() -> None:
    assert [place for path in sources("topo") for place in raw_system_errors(path)] == []


def test_a_class_is_named_by_a_noun() -> None:
    assert [place for path in sources("topo", "benchmarks") for place in participles(path)] == []


def test_no_docstring_begins_with_a_question_word() -> None:
    assert [place for path in sources(*ROOMS) for place in question_words(path)] == []


def test_a_functions_docstring_begins_with_a_verb() -> None:
    paths = [path for path in sources("topo") if path != ROOT / "topo" / "errors.py"]
    assert [place for path in paths for place in without_verb(path)] == []


def test_plain_words_instead_of_banned_phrases() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    paths = [*sources("topo", "benchmarks", "examples"), *pages]
    assert [place for path in paths for place in banned_phrases(path)] == []


@pytest.mark.parametrize(
    ("check", "code"),
    [
        (question_words, 'def size():\n    """How large it is."""\n'),
        (question_words, '"""What tasks share."""\n'),
        (without_verb, 'def size():\n    """The size."""\n'),
        (raw_system_errors, 'print(f"cannot write: {error.strerror}")\n'),
        (participles, "class _Found:\n    pass\n"),
        (banned_phrases, 'raise ValueError("40 bytes that are no frame")\n'),
    ],
)
def test_each_check_finds_its_mistake(check, code, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "module.py").write_text(code, encoding="utf-8")
    assert len(check(tmp_path / "module.py")) == 1


def test_a_property_is_a_noun_and_a_predicate_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        'class Box:\n    """A box."""\n\n'
        '    @property\n    def size(self):\n        """The size."""\n\n'
        '    def is_open(self):\n        """True iff the box is open."""\n',
        encoding="utf-8",
    )
    assert question_words(path) == without_verb(path) == banned_phrases(path) == []
