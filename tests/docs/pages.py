"""The README and the pages of `docs/` as data: their code, and the parts that are generated.

    python -m tests.docs.pages        writes the generated parts again

Generated is the text between `<!-- NAME -->` and `<!-- /NAME -->`, and the page of figures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from tests.docs.vocabulary import vocabulary_table
from tests.unit.cli_mistakes import mistakes_table
from topo.cli.root import COMMANDS, root
from topo.config import settings_table
from topo.metrics.reference import page as figures_page

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
TUTORIAL = sorted((DOCS / "tutorial").glob("*.md"))
"""The pages that are one project; `test_tutorial` runs their files and commands."""

_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


@dataclass(frozen=True)
class Block:
    """Fenced code of a page: its language, and the line of its first line."""

    page: Path
    language: str
    line: int
    text: str
    not_run: str
    """The reason for which the code is only compiled, or ""."""

    @property
    def file(self) -> str:
        """The name in the block's first line, "# records.py"; else ""."""
        match = re.match(r"# (\w+\.py)\n", self.text)
        return match[1] if match else ""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> Iterator[Block]:
    """Yield the page's blocks of a language in order."""
    return (block for block in page_blocks(page) if block.language == language)


def page_blocks(page: Path) -> Iterator[Block]:
    """Yield the page's blocks of all languages in order."""
    fence, start, lines, not_run = "", 0, list[str](), ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if fence and line == "```":
            yield Block(page, fence, start, "\n".join(lines) + "\n", not_run)
            fence = not_run = ""
        elif fence:
            lines.append(line)
        elif line.startswith("```"):
            fence, start, lines = line.removeprefix("```") or "text", number + 1, []
        elif line.strip():
            match = _NOT_RUN.fullmatch(line)
            not_run = match[1] if match else ""


def _usage_and_help() -> Iterator[tuple[str, str, str]]:
    context = click.Context(root, info_name="topo", **root.context_settings)
    for name, entry in COMMANDS.items():
        command = root.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context, terminal_width=96)
        pieces = [piece for piece in command.collect_usage_pieces(own) if piece != "[OPTIONS]"]
        yield " ".join(["topo", name, *pieces]), entry.line, command.get_help(own)


def commands_table() -> str:
    """Return the table of all commands."""
    lines = ["| command | what it does |", "|---|---|"]
    lines += [f"| `{usage}` | {line} |" for usage, line, _ in _usage_and_help()]
    return "\n".join(lines)


def command_helps() -> str:
    """Return a section per command with its help."""
    return "\n\n".join(
        f"## {' '.join(usage.split()[:2])}\n\n```text\n{text.rstrip()}\n```"
        for usage, _, text in _usage_and_help()
    )


TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "settings": (DOCS / "reference" / "configuration.md", settings_table),
    "commands": (DOCS / "reference" / "cli.md", commands_table),
    "helps": (DOCS / "reference" / "cli.md", command_helps),
    "vocabulary": (DOCS / "connectors" / "index.md", vocabulary_table),
    "mistakes": (DOCS / "reference" / "mistakes.md", mistakes_table),
}
"""The pages of the generated parts, and the functions that generate them."""

FIGURES = DOCS / "reference" / "figures.md"


def generated(name: str) -> str:
    """Return the present text between the markers of a generated part."""
    page = TABLES[name][0]
    text = page.read_text(encoding="utf-8")
    match = re.search(f"<!-- {name} -->(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert match, f"{name_of(page)} has no <!-- {name} --> ... <!-- /{name} -->"
    return match[1].strip()


def write_generated() -> None:
    for name, (page, generate) in TABLES.items():
        text = page.read_text(encoding="utf-8")
        before, opening, rest = text.partition(f"<!-- {name} -->")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        page.write_text(f"{before}{opening}\n{generate()}\n{closing}{after}", encoding="utf-8")
    FIGURES.write_text(figures_page(), encoding="utf-8")


if __name__ == "__main__":
    write_generated()
