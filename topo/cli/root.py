"""The root command: the options of all commands, and the exit code of a failure.

Commands are listed here with their one-line help, so that `topo --help` imports none of them.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from topo.cli.failures import INTERRUPTED, print_failure, usage_error
from topo.cli.foreign import answer_to
from topo.cli.output import Output, common_options
from topo.distribution import VERSION


@dataclass(frozen=True)
class Entry:
    """The place of a command, as MODULE:ATTRIBUTE in topo.cli, and the first line of its help."""

    place: str
    line: str
    is_for_users: bool = True
    """False for what works in a checkout of topo's source only: no list has it."""


GROUPS = {
    "Run": {
        "quickstart": Entry(
            "quickstart:quickstart", "Write a small project: a topology, its test, its settings."
        ),
        "local": Entry("local:local", "Run a topology in the foreground."),
        "run": Entry(
            "run:run", "Run a topology for a container's runtime, systemd or another supervisor."
        ),
        "submit": Entry("submit:submit", "Submit a topology to run in the background."),
        "up": Entry("up:up", "Keep the submitted topologies of this machine running."),
        "export": Entry(
            "export:export", "Print what other programs run topologies by, or watch them by."
        ),
        "acker": Entry(
            "acker:acker",
            "Run an acker, which tracks the messages of topologies that have its address.",
        ),
        "drpc": Entry(
            "drpc:drpc", "Run a server of calls, or call a function that a topology computes."
        ),
    },
    "Look": {
        "list": Entry("list:list_runs", "List running topologies."),
        "stats": Entry(
            "stats:stats", "Show the figures of a topology, or of one of its components."
        ),
        "errors": Entry(
            "errors:errors",
            "Show the errors of a topology: uncaught, reported, and failed messages.",
        ),
        "scale": Entry(
            "scale:scale", "Show how many slots a topology has decided to have, and why."
        ),
        "state": Entry("state:state", "Show the keyed state that bolts have saved."),
        "logs": Entry("logs:logs", "Show the log records and prints of a topology's code."),
        "ui": Entry("ui:ui", "Show and steer the topologies in a browser, and by REST."),
    },
    "Change": {
        "activate": Entry("activate:activate", "Resume a topology's spouts."),
        "deactivate": Entry(
            "activate:deactivate",
            "Stop a topology's spouts; messages in flight are still processed.",
        ),
        "rebalance": Entry(
            "rebalance:rebalance", "Give a running topology other numbers of slots or tasks."
        ),
        "savepoint": Entry(
            "savepoint:savepoint",
            "Write all that a topology has saved into a directory, or show what is in one.",
        ),
        "kill": Entry("kill:kill", "Stop topologies; their state is kept unless it is purged."),
        "checkpoints": Entry(
            "checkpoints:checkpoints",
            "List the state that topologies have left or work on, or delete it.",
        ),
    },
    "Check": {
        "rules": Entry("rules:rules", "Check a rules file: its mistakes, and how rules are found."),
        "explain": Entry(
            "explain:explain", "Show a topology's structure and plan, without running it."
        ),
        "doctor": Entry(
            "doctor:doctor", "Check this machine and the environment for topo's requirements."
        ),
        "bench": Entry(
            "bench:bench", "Measure how fast this machine runs topo.", is_for_users=False
        ),
    },
}
"""Every command by what it is for, in the order of `topo --help`."""
_COMPLETION = "_TOPO_COMPLETE"
"""The variable by which a shell asks for a completion, as click calls it."""
COMMANDS = {name: entry for entries in GROUPS.values() for name, entry in entries.items()}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in COMMANDS.items() if entry.is_for_users]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].place.partition(":")
        command = getattr(importlib.import_module(f"topo.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            if answer := answer_to(args[0]):
                raise usage_error(answer[0], at=ctx.command_path, hint=answer[1])
            raise click.NoSuchOption(args[0], f"no command {args[0]!r}", list(COMMANDS), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for group, entries in GROUPS.items():
            lines = [(f"{n:{width}}", e.line) for n, e in entries.items() if e.is_for_users]
            with formatter.section(group):
                formatter.write_dl(lines)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@common_options(hide=False)
@click.version_option(VERSION, message="topo %(version)s")
@click.pass_obj
def root(out: Output) -> None:
    """Apache Storm topologies in Python, run on Apache Spark.

    TARGET is a topology to build: PATH.py[:ATTR] or package.module[:ATTR]. NAME is a running one.

    \b
    Examples:
      topo local wordcount.py --show count
      topo submit wordcount.py --name words
      topo stats words
      topo kill words
    """


def open_closed_streams() -> None:
    """Lead the standard streams that the caller has closed nowhere, as daemons do.

    Python has None in place of such a stream, and the next file that is opened gets its number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def run(argv: Sequence[str]) -> int:
    """Run one command line; return the exit code."""
    open_closed_streams()
    out = Output(json="--json" in argv[: argv.index("--") if "--" in argv else None])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may be of any bytes; JSON stays JSON
            stream.reconfigure(errors="backslashreplace")
    try:
        result: Any = root.main(
            args=list(argv) or ["--help"], prog_name="topo", standalone_mode=False, obj=out
        )
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:  # click exits where it meets the former
        if _COMPLETION in os.environ and isinstance(error, SystemExit):  # and after a completion
            return int(error.code or 0)
        # The reader of stdout has gone; the interpreter's flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        return print_failure(error, out)
    return result if isinstance(result, int) else 0
