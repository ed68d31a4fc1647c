"""The README as data: its code by section, and the tables in it that the code generates.

python -m tests.docs.readme        writes those tables anew
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from tests.unit.cli_mistakes import mistakes_table
from topo.cli.root import COMMANDS, root
from topo.config import settings_table

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


@dataclass(frozen=True)
class Block:
    """Fenced code: its language, and the line its first line has in the README."""

    section: str
    language: str
    line: int
    text: str

    @property
    def file(self) -> str:
        """The name a block gives itself in its first line, "# records.py"; else ""."""
        found = re.match(r"# (\w+\.py)\n", self.text)
        return found[1] if found else ""


def blocks(language: str) -> Iterator[Block]:
    section, fence, start, kept = "", "", 0, list[str]()
    for number, line in enumerate(README.read_text(encoding="utf-8").splitlines(), 1):
        if fence and line == "```":
            if fence == language:
                yield Block(section, fence, start, "\n".join(kept) + "\n")
            fence = ""
        elif fence:
            kept.append(line)
        elif line.startswith("```"):
            fence, start, kept = line.removeprefix("```"), number + 1, []
        elif line.startswith("## "):
            section = line.removeprefix("## ")


def commands_table() -> str:
    lines = ["| command | what it does |", "|---|---|"]
    context = click.Context(root, info_name="topo")
    for name, entry in COMMANDS.items():
        command = root.get_command(context, name)
        assert command is not None
        pieces = command.collect_usage_pieces(click.Context(command, parent=context))
        usage = " ".join(["topo", name, *(piece for piece in pieces if piece != "[OPTIONS]")])
        lines.append(f"| `{usage}` | {entry.line} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "commands": commands_table,
    "mistakes": mistakes_table,
}
"""What generates the text between `<!-- NAME -->` and `<!-- /NAME -->`."""


def generated(name: str) -> str:
    """The text between the markers of a table."""
    text = README.read_text(encoding="utf-8")
    found = re.search(f"<!-- {name} -->(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found, f"README.md has no <!-- {name} --> ... <!-- /{name} -->"
    return found[1].strip()


def write_tables() -> None:
    text = README.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        before, opening, rest = text.partition(f"<!-- {name} -->")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{opening}\n{table()}\n{closing}{after}"
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_tables()
