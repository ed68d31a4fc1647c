"""Failures of a command: an exit code, and three lines or a JSON document on stderr."""

from __future__ import annotations

import traceback

import click

from topo.cli.output import Output, to_json
from topo.errors import (
    InvalidTopologyError,
    TargetError,
    TopoError,
    did_you_mean,
    printable,
    sentence_of,
    words_of,
)

USER_CODE, USAGE, INVALID, STATUS, ENVIRONMENT, WENT_BACK = 1, 2, 3, 4, 5, 7
TOO_LATE, INTERRUPTED = 124, 130

_EXIT_CODES = {
    "uncaught": USER_CODE,
    "config": USAGE,
    "target": USAGE,
    "project": ENVIRONMENT,
    "checkpoint": USAGE,
    "bench": USAGE,
    "grep": USAGE,
    "invalid-topology": INVALID,
    "component": INVALID,
    "unpicklable": INVALID,
    "run": STATUS,
    "engine": ENVIRONMENT,
    "missing-extra": ENVIRONMENT,
    "no-java": ENVIRONMENT,
    "driver": ENVIRONMENT,
    "registry": ENVIRONMENT,
    "os": ENVIRONMENT,
    "acker": ENVIRONMENT,
    "workers": ENVIRONMENT,
    "spark-start": ENVIRONMENT,
    "spark": ENVIRONMENT,
    "start-failed": ENVIRONMENT,
}


class CommandError(TopoError):
    """A failure of a command itself, with its exit code."""

    def __init__(self, exit_code: int, message: str, *, code: str, at: str = "", hint: str = ""):
        super().__init__(message, at=at, hint=hint, code=code)
        self.exit_code = exit_code


def usage_error(message: str, *, at: str = "", hint: str = "") -> CommandError:
    return CommandError(USAGE, message, code="usage", at=at, hint=hint)


def environment_error(message: str, *, code: str, at: str = "", hint: str = "") -> CommandError:
    return CommandError(ENVIRONMENT, message, code=code, at=at, hint=hint)


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, TargetError) and error.user_traceback:
        return USER_CODE
    if isinstance(error, TopoError):
        codes = [error.code, *(getattr(kind, "code", "") for kind in type(error).__mro__)]
        return next((_EXIT_CODES[code] for code in codes if code in _EXIT_CODES), USER_CODE)
    if isinstance(error, click.ClickException):
        return USAGE
    if isinstance(error, TimeoutError):
        return TOO_LATE
    if isinstance(error, OSError):
        return ENVIRONMENT
    return USER_CODE


def print_failure(error: Exception, out: Output) -> int:
    """Print a failure on stderr; return the exit code."""
    shown = _as_topo_error(error)
    if out.json:
        click.echo(to_json({"error": _document(shown)}), err=True)
    else:
        _print_lines(shown, out)
    if out.verbose:
        trace = "".join(traceback.format_exception(error))
        click.echo(printable(trace), err=True, nl=False)
    return exit_code_of(error)


def _document(error: TopoError) -> dict[str, object]:
    problems = error.problems if isinstance(error, InvalidTopologyError) else []
    return {
        "code": error.code,
        "message": error.message,
        "at": error.at,
        "hint": error.hint,
        "problems": [
            {"code": p.code, "where": p.where, "message": p.message, "hint": p.hint}
            for p in problems
        ],
    }


def _print_lines(error: TopoError, out: Output) -> None:
    users = getattr(error, "user_traceback", "")
    if users:
        click.echo(printable(users.rstrip()) + "\n", err=True)
    click.echo(f"{out.style('error:', 'red')} {printable(error.message)}", err=True)
    if error.at:
        click.echo(f"  at: {printable(error.at)}", err=True)
    if error.hint:
        click.echo(f"  hint: {printable(error.hint)}", err=True)


def _as_topo_error(error: Exception) -> TopoError:
    if isinstance(error, TopoError):
        return error
    if isinstance(error, click.ClickException):
        return _from_click(error)
    if isinstance(error, TimeoutError):
        return TopoError(str(error) or "too late", code="timeout")
    if isinstance(error, OSError):
        return TopoError(words_of(error), at=str(error.filename or ""), code="os")
    return TopoError(
        f"topo failed by itself: {type(error).__name__}: {sentence_of(error)}",
        hint="-v shows where",
        code="internal",
    )


def _from_click(error: click.ClickException) -> TopoError:
    context = getattr(error, "ctx", None)
    at = context.command_path if context else ""
    if isinstance(error, click.NoSuchOption):
        words = error.message if error.message.startswith("no command") else ""
        name = error.option_name
        near = did_you_mean(name, list(error.possibilities or []))
        return TopoError(
            words or f"no option {name}", at=at, hint=near or f"{at} --help", code="usage"
        )
    if isinstance(error, click.MissingParameter):
        name = error.param.make_metavar(context) if error.param and context else "an argument"
        return TopoError(f"{name} is missing", at=at, hint=f"{at} --help", code="usage")
    message = error.format_message().rstrip(".")
    hint = f"{at} --help" if at else ""
    return TopoError(message[:1].lower() + message[1:], at=at, hint=hint, code="usage")
