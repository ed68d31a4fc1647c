"""The features of all commands: help, errors, exit codes, JSON, colours, light imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from topo.cli.failures import exit_code_of, usage_error
from topo.cli.output import Output, to_json
from topo.cli.root import COMMANDS, LazyGroup, root, run
from topo.errors import (
    CheckpointError,
    ConfigError,
    EngineError,
    InvalidTopologyError,
    Problem,
    RunError,
    TargetError,
    TopoError,
    UncaughtError,
)

Captured = pytest.CaptureFixture[str]


def test_without_arguments_there_is_help(capsys: Captured) -> None:
    assert run([]) == 0
    bare = capsys.readouterr()
    assert run(["--help"]) == 0
    assert (bare.out, bare.err) == (capsys.readouterr().out, "")


def test_help_lists_every_command_of_a_user(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert (entry.line in " ".join(shown.split())) == entry.is_for_users
        assert (f"  {name} " in shown) == entry.is_for_users
    assert [name for name, entry in COMMANDS.items() if not entry.is_for_users] == ["bench"]


def test_a_benchmark_without_topos_source_says_what_to_do(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.cli.bench.__file__", "/nowhere/topo/cli/bench.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["bench"]) == 2
    shown = capsys.readouterr().err
    assert "topo bench needs the benchmarks of topo's source" in shown
    assert "  hint: git clone topo's source" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_begins_with_its_line(name: str, capsys: Captured) -> None:
    assert run([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: topo {name} ")
    assert "--json" in shown
    assert isinstance(root, LazyGroup)
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name].line
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts} has no help"


def commands_of(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from commands_of(command)


def test_no_two_options_share_a_parameter() -> None:
    """Versions of click differ in what such options give if neither is typed."""
    commands = list(commands_of(root))
    assert len(commands) >= len(COMMANDS)
    for command in commands:
        names = [parameter.name for parameter in command.params]
        assert len(names) == len(set(names)), (command.name, names)


def test_a_flag_that_is_not_typed_is_false() -> None:
    for command in commands_of(root):
        for option in command.params:
            if isinstance(option, click.Option) and option.is_flag:
                assert not option.get_default(click.Context(command)), (command.name, option.opts)


def test_help_imports_no_engine() -> None:
    code = (
        "import sys\nfrom topo.cli.root import run\nrun(['--help'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pyspark", "grpc", "numpy", "pandas", "pyarrow", "rich.table", "cloudpickle"}
    assert not heavy & set(done.stderr.split())


def test_an_error_is_three_lines_on_stderr(capsys: Captured) -> None:
    assert run(["exlain"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "error: no command 'exlain'\n  at: topo\n  hint: did you mean 'explain'?\n"


def test_an_error_as_json(capsys: Captured) -> None:
    assert run(["bench", "--json", "--zeconds", "3"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert json.loads(said.err) == {
        "error": {
            "code": "usage",
            "message": "no option --zeconds",
            "at": "topo bench",
            "hint": "did you mean '--seconds'?",
            "problems": [],
        }
    }


def test_json_among_the_users_arguments_is_not_ours(capsys: Captured) -> None:
    assert run(["explain", "nowhere.py", "--", "--json"]) == 2
    assert capsys.readouterr().err.startswith("error: no file 'nowhere.py'\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UncaughtError("x", component="a", task=1), 1),
        (TargetError("x", user_traceback="Traceback"), 1),
        (TargetError("x"), 2),
        (ConfigError("x"), 2),
        (CheckpointError("x"), 2),
        (usage_error("x"), 2),
        (click.UsageError("x"), 2),
        (InvalidTopologyError([Problem("a", "b", "c")]), 3),
        (RunError("x"), 4),
        (EngineError("x"), 5),
        (TimeoutError("x"), 124),
        (TopoError("x", code="unknown-component"), 1),
        (ValueError("x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


def test_a_failure_of_topos_own_shows_its_traceback_only_when_asked(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*args: object) -> None:
        raise KeyError("inner")

    monkeypatch.setattr("benchmarks.report.check_suites", broken)
    assert run(["bench"]) == 1
    quiet = capsys.readouterr().err
    assert quiet == "error: topo failed by itself: KeyError: 'inner'\n  hint: -v shows where\n"
    assert run(["-v", "bench"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.report.check_suites", interrupted)
    assert run(["bench"]) == 130


def test_colours_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Output(color="always").style("x", "red") != "x"
    assert Output(color="never").style("x", "red") == "x"
    assert Output().style("x", "red") == "x"  # stderr is no terminal here
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert Output().style("x", "red") != "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Output().style("x", "red") == "x"


def test_a_table_is_plain_columns_without_wrapping(capsys: Captured) -> None:
    Output().table(["NAME", "COUNT", "WHY"], [["a", "1", "w" * 200], ["bcd", "12", ""]])
    shown = capsys.readouterr().out
    assert [line.rstrip() for line in shown.splitlines()] == [
        "NAME  COUNT  WHY",
        "a         1  " + "w" * 200,
        "bcd      12",
    ]


def test_json_of_dataclasses_and_times() -> None:
    from dataclasses import dataclass
    from datetime import datetime, timedelta, timezone
    from types import MappingProxyType

    @dataclass
    class Figures:
        at: datetime
        by: MappingProxyType[str, int]

    when = datetime(2026, 11, 17, 10, tzinfo=timezone(timedelta(hours=2)))
    assert json.loads(to_json([Figures(when, MappingProxyType({"a": 1}))])) == [
        {"at": "2026-11-17T08:00:00Z", "by": {"a": 1}}
    ]


def test_data_commands_no_terminal_and_breaks_no_table(capsys: Captured) -> None:
    out = Output()
    odd = "caf\udce9 \x1b]0;owned\x07\x9b31m\r\nnext\ttab"
    out.table(["NAME", "REASON"], [["words", odd]])
    out.answer(odd)
    out.note(odd, hint=odd)
    out.warn(odd)
    shown = capsys.readouterr()
    both = shown.out + shown.err
    assert not {char for char in both if ord(char) < 32 or 126 < ord(char) < 160} - {"\n", "\t"}
    assert len(shown.out.splitlines()) == 2 + 2, "a cell is one line"
    assert r"\x1b]0;owned\x07\x9b31m\x0d" in shown.out


def test_only_a_terminal_is_cleared(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    Output().clear()
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(Output, "is_terminal", True)
    Output().clear()
    assert capsys.readouterr().out == "\x1b[H\x1b[J"


def test_names_of_any_bytes_are_shown(tmp_path: Path) -> None:
    name = b"caf\xe9.py"
    for options in ([], ["--json"]):
        command: list[str | bytes] = [sys.executable, "-m", "topo.cli", "explain", *options, name]
        ran = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False)
        assert ran.returncode == 2, ran.stderr
        assert rb"\udce9.py" in ran.stderr
        assert b"Traceback" not in ran.stderr
