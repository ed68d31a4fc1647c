"""The output of a command: the answer to stdout, all else to stderr; as text or JSON.

Text is plain when stdout is no terminal, and `NO_COLOR` is honoured.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from topo.errors import printable, printable_json
from topo.manage.documents import plain

F = TypeVar("F", bound=Callable[..., Any])

_STATUS_COLORS = {
    "ACTIVE": "green",
    "COMPLETED": "green",
    "STARTING": "cyan",
    "INACTIVE": "yellow",
    "STALLED": "yellow",
    "REBALANCING": "yellow",
    "FAILED": "red",
    "ok": "green",
    "warn": "yellow",
    "FAIL": "red",
}


@dataclass
class Output:
    """The output options of this invocation, and the functions that print."""

    json: bool = False
    color: str = "auto"
    quiet: bool = False
    verbose: bool = False
    env: str | None = None

    def use_json(self) -> None:
        """Print errors as JSON, as if --json were given."""
        self.json = True

    def answer(self, text: str) -> None:
        """Print a line of the answer, for people."""
        click.echo(printable(text))

    def clear(self) -> None:
        """Empty the screen, if stdout is a terminal."""
        if self.is_terminal:
            click.echo("\x1b[H\x1b[J", nl=False, color=True)

    def answer_json(self, document: object) -> None:
        """Print the answer, or one line of it, for programs."""
        click.echo(to_json(document))

    def say(self, text: str) -> None:
        """Print progress to stderr, unless -q is given."""
        if not self.quiet:
            click.echo(printable(text), err=True)

    def note(self, text: str, hint: str = "") -> None:
        """Print a note, which is no failure, to stderr, also with -q."""
        click.echo(printable(text), err=True)
        if hint:
            click.echo(f"  hint: {printable(hint)}", err=True)

    def warn(self, text: str) -> None:
        click.echo(f"{self.style('warning:', 'yellow')} {printable(text)}", err=True)

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    @property
    def err_is_terminal(self) -> bool:
        return sys.stderr.isatty()

    def style(self, text: str, color: str) -> str:
        """Return the text in colour if stderr shows colours."""
        return click.style(text, fg=color, bold=True) if self._colored(sys.stderr) else text

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print columns under their names."""
        for line in self.format_table(columns, rows):
            click.echo(line)

    def lines(self, rows: Sequence[Sequence[str]]) -> None:
        """Print columns without names."""
        for line in self.format_table(None, rows):
            click.echo(line)

    def format_table(
        self, columns: Sequence[str] | None, rows: Sequence[Sequence[str]]
    ) -> list[str]:
        """Return aligned columns: only columns of figures are aligned to the right."""
        # A cell is one line, whatever is in it.
        rows = [[printable(cell).replace("\n", "\\n") for cell in row] for row in rows]
        table = [list(columns), *rows] if columns else rows
        if not table:
            return []
        count = len(table[0])
        widths = [max(len(row[index]) for row in table) for index in range(count)]
        figures = [_are_figures([row[index] for row in rows]) for index in range(count)]
        lines = []
        for number, row in enumerate(table):
            cells = [
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, figures, strict=True)
            ]
            if self._colored(sys.stdout):
                cells = [_colored_cell(cell, bool(columns) and number == 0) for cell in cells]
            lines.append("  ".join(cells).rstrip())
        return lines

    def _colored(self, stream: Any) -> bool:
        if self.color == "auto":
            return bool(stream.isatty()) and not os.environ.get("NO_COLOR")
        return self.color == "always"


def _are_figures(cells: Sequence[str]) -> bool:
    return bool(cells) and all(cell[:1].isdigit() or cell in ("", "-") for cell in cells)


def _colored_cell(cell: str, is_header: bool) -> str:
    if is_header:
        return click.style(cell, bold=True)
    return click.style(cell, fg=_STATUS_COLORS.get(cell.strip()))


def to_json(document: object) -> str:
    return printable_json(json.dumps(plain(document), ensure_ascii=False))


def common_options(*, hide: bool = True) -> Callable[[F], F]:
    """Add the options that may stand before or after the command."""

    def keep(attribute: str) -> Callable[[click.Context, click.Parameter, Any], None]:
        def callback(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
            if value not in (None, False):
                setattr(ctx.ensure_object(Output), attribute, value)

        return callback

    def common(*names: str, hidden: bool = False, **settings: Any) -> Callable[[F], F]:
        attribute = names[-1].removeprefix("--")
        return click.option(
            *names, callback=keep(attribute), expose_value=False, hidden=hidden, **settings
        )

    environment = "Use this environment of topo.toml ($TOPO_ENV)."
    colors = "Show colours; auto: on a terminal, unless $NO_COLOR is set."
    choice = click.Choice(["auto", "always", "never"])
    verbosity = "Print more on stderr, with topo's own tracebacks."
    options = [
        common("--env", metavar="NAME", envvar="TOPO_ENV", help=environment),
        common("--color", type=choice, hidden=hide, help=colors),
        common("-q", "--quiet", is_flag=True, hidden=hide, help="Print no progress on stderr."),
        common("-v", "--verbose", is_flag=True, hidden=hide, help=verbosity),
        common(
            "--json",
            is_flag=True,
            hidden=not hide,
            help="Print the answer, and any error, as JSON.",
        ),
    ]

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def short_number(value: float) -> str:
    """Format 1210000 as "1.21 M": three digits and a unit."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            scaled = value / size
            return f"{scaled:.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {unit}"
    return f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"
