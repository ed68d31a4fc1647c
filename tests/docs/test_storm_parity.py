"""What the tables of Storm's features claim is there: tests, pages, examples, commands, names."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

from tests.docs.pages import DOCS, ROOT
from topo.builder import BoltDeclarer, SpoutDeclarer
from topo.cli.root import COMMANDS, root
from topo.config.settings import SETTINGS
from topo.config.storm import IGNORED
from topo.drpc.client import DrpcClient
from topo.engine.inline.run import InlineRun
from topo.streams.api.results import State

PAGES = {
    "storm-parity.md": ("works", "differs", "not there"),
    "storm-around.md": ("works", "differs", "not there"),
    "storm-starter.md": ("ports", "does not"),
}
MISSING = ("not there", "does not")
MODULES = (
    *("topo", "topo.streams", "topo.testing", "topo.drpc", "topo.multilang", "topo.connectors"),
    *(f"topo.connectors.{name}" for name in ("files", "kafka", "query", "redis", "spark", "sql")),
)
FUNCTIONS_OF_EXAMPLES = {"by_hand": "exclaim.py", "with_node": "multilang_word_count.py"}


@dataclass(frozen=True)
class Row:
    """A row of a table: a feature of Storm, what became of it, how, and where it is shown."""

    page: str
    feature: str
    state: str
    how: str
    shown: str


def rows_of(page: str) -> Iterator[Row]:
    text = (DOCS / "migrate" / page).read_text(encoding="utf-8")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] not in ("Storm", "topology"):
            assert len(cells) == 4, line
            yield Row(page, *cells)


ROWS = [row for page in PAGES for row in rows_of(page)]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


# -- what is claimed ------------------------------------------------------------------------------


def test_each_row_says_what_is_there_and_what_shows_it() -> None:
    for row in ROWS:
        assert row.state in PAGES[row.page], row
        assert row.how, row
        assert bool(row.shown) == (row.state not in MISSING), row
        assert re.sub(r"`[^`]+`|[, ]", "", row.shown) == "", row


def test_what_shows_it_exists() -> None:
    references = [reference for row in ROWS for reference in quoted(row.shown)]
    assert len(references) > 100
    assert [reference for reference in references if not is_test(reference)] == []


def is_test(reference: str) -> bool:
    """Return True if `file.py` or `file.py::function` is a file or a test below `tests/`."""
    file, _, function = reference.partition("::")
    path = ROOT / "tests" / file
    if not (path.is_file() and path.name.startswith("test_")):
        return False
    return not function or function in functions_of(path)


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_links_lead_to_headings() -> None:
    for row in ROWS:
        for page, anchor in re.findall(r"\]\(([^)#]+)#?([^)]*)\)", row.how):
            path = (DOCS / "migrate" / page).resolve()
            assert path.is_file(), page
            assert not anchor or anchor in anchors_of(path), f"{page}#{anchor}"


@cache
def anchors_of(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_what_is_named_is_there() -> None:
    names = {name for row in ROWS for name in quoted(row.how)}
    assert len(names) > 100
    assert sorted(name for name in names if not is_there(name)) == []


def test_a_name_that_is_not_there_is_noticed() -> None:
    for name in (
        *("examples/none.py", "topo none", "topo submit --none", "topology.none", "NoBolt"),
        *("emit(none=1)", "self.nothing", "window(Global(), trigger=AfterNone(3))", "none="),
    ):
        assert not is_there(name), name
    assert not is_test("docs/test_nothing.py")
    assert not is_test("docs/test_storm_parity.py::test_nothing")
    assert "nothing" not in anchors_of(DOCS / "migrate" / "storm.md")


# -- names ----------------------------------------------------------------------------------------


def is_there(name: str) -> bool:
    """Return True if a name of a "how" cell is an example, command, setting or public name."""
    if name.startswith("examples/"):
        return (ROOT / name).is_file()
    if name.startswith("topo "):
        return is_command(name.split()[1:])
    if name.startswith("topology."):
        return name in SETTINGS
    if name in FUNCTIONS_OF_EXAMPLES:
        return name in functions_of(ROOT / "examples" / FUNCTIONS_OF_EXAMPLES[name])
    call = ast.parse(f"f({name.lstrip('@')}{'0' if name.endswith('=') else ''})", mode="eval").body
    assert isinstance(call, ast.Call)
    for node in (part for argument in (*call.args, *call.keywords) for part in ast.walk(argument)):
        if isinstance(node, ast.Name) and node.id not in ("self", "context"):
            found = node.id in public_names() or node.id in members()
        elif isinstance(node, ast.Attribute):
            found = node.attr in members()
        elif isinstance(node, ast.keyword):
            found = node.arg in parameters()
        else:
            found = True
        if not found:
            return False
    return True


def is_command(words: list[str]) -> bool:
    """Return True if words are a command of topo with options that it has."""
    if words[0] not in COMMANDS:
        return False
    command = root.get_command(click.Context(root), words[0])
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    return all(word in options for word in words[1:] if word.startswith("-"))


@cache
def public_names() -> dict[str, object]:
    modules = [importlib.import_module(name) for name in MODULES]
    names = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {**names, "DrpcClient": DrpcClient}


@cache
def classes() -> list[type]:
    found = [value for value in public_names().values() if inspect.isclass(value)]
    return [*found, BoltDeclarer, SpoutDeclarer, State, InlineRun]


@cache
def members() -> set[str]:
    annotated = {name for each in classes() for name in inspect.get_annotations(each)}
    return annotated | {name for each in classes() for name in dir(each)}


@cache
def parameters() -> set[str]:
    functions = [
        value
        for each in classes()
        for _, value in inspect.getmembers(each, callable)
        if inspect.isfunction(value)
    ]
    return {name for function in functions for name in inspect.signature(function).parameters}


# -- numbers --------------------------------------------------------------------------------------


def test_no_feature_stands_twice() -> None:
    counts = Counter(row.feature for row in ROWS)
    assert [feature for feature, count in counts.items() if count > 1] == []


def test_storm_starter_is_counted() -> None:
    states = Counter(row.state for row in ROWS if row.page == "storm-starter.md")
    text = (DOCS / "migrate" / "storm-starter.md").read_text(encoding="utf-8")
    assert states.total() == 38
    assert f"{states['ports']} port, {states['does not']} do not." in text


def test_the_settings_are_counted() -> None:
    keys = (ROOT / "tests" / "unit" / "storm_keys.txt").read_text(encoding="utf-8").split()
    (row,) = [row for row in ROWS if row.feature.endswith("settings `topology.*`")]
    ignored = sum(key in IGNORED for key in keys)
    numbers = [int(number) for number in re.findall(r"\d+", row.feature + row.how)]
    assert numbers == [len(keys), len(keys) - ignored, ignored]


def test_a_page_is_not_too_long() -> None:
    for page in PAGES:
        assert (DOCS / "migrate" / page).stat().st_size < 12_000, page
