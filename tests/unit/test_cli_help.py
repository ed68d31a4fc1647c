"""The words of the command line: groups, examples, letters, sentences, completion, other names."""

from __future__ import annotations

import inspect
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest

from tests.unit.test_control_registry import make, say
from tests.unit.test_from_list import reading
from topo import FromList
from topo.cli import foreign
from topo.cli.root import COMMANDS, GROUPS, root, run
from topo.manage.registry import Registry

TOPO = click.Context(root, info_name="topo", **root.context_settings)
"""The parent of every command's context: click keeps the option `--help` that a command has first,
and only the parent says that `-h` is one of its names."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command and each command of a command, with its words."""
    for name in COMMANDS:
        command = root.get_command(TOPO, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())


ALL = dict(commands())
OPTIONS = [
    (name, option)
    for name, command in ALL.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
]


def examples(command: click.Command) -> list[list[str]]:
    text = inspect.cleandoc(command.help or "")
    _, heading, block = text.partition("\b\nExample")
    assert heading, "there is no example"
    lines = [shlex.split(line) for line in block.splitlines()[1:] if line.strip()]
    return [list(takewhile(lambda word: word not in ("|", ">"), words)) for words in lines]


NO_VERBS = {
    *("A", "An", "The", "Its", "Every", "Those"),
    *("Of", "With", "What", "Whose", "Where", "How"),
}


# -- help ------------------------------------------------------------------------------------------


def test_commands_come_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    groups = [line.removesuffix(":") for line in lines if line[:1].isalpha() and line[-1] == ":"]
    assert groups == ["Options", *GROUPS]
    assert list(GROUPS) == ["Run", "Look", "Change", "Check"]


@pytest.mark.parametrize("name", ALL)
def test_an_example_of_each_command_is_one(name: str) -> None:
    command = ALL[name]
    for words in examples(command):
        given = ["topo", *name.split()]
        assert words[: len(given)] == given
        args = words[len(given) :]
        context = command.make_context(name, args, parent=TOPO)
        assert context.params is not None


def test_a_letter_means_one_thing() -> None:
    meanings: dict[str, set[str]] = defaultdict(set)
    for name, option in OPTIONS:
        shown, _ = option.get_help_record(click.Context(ALL[name], parent=TOPO)) or ("", "")
        for letter in re.findall(r"(?<![-\w])-\w\b", shown):
            words = [opt for opt in option.opts if opt.startswith("--")]
            meanings[letter].add(words[0] if words else (option.name or ""))
    assert {letter: words for letter, words in meanings.items() if len(words) > 1} == {}
    assert meanings["-n"] == {"--name"}


@pytest.mark.parametrize(
    ("name", "option"), OPTIONS, ids=lambda each: str(getattr(each, "name", each))
)
def test_the_help_of_an_option_is_a_sentence(name: str, option: click.Option) -> None:
    text = option.help or ""
    assert text[:1].isupper() or text.startswith(("-", "`")), text
    assert text.rstrip(")")[-1] in ".)" or text.endswith(")"), text
    assert text.split()[0] not in NO_VERBS, text


# -- old spellings, and names of Storm ------------------------------------------------------------


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Registry(tmp_path / "home")


@pytest.mark.parametrize("command", ["errors", "logs"])
def test_the_old_spelling_of_last_still_answers(registry: Registry, command: str) -> None:
    def last(*words: str) -> int:
        context = ALL[command].make_context(command, ["words", *words], parent=TOPO)
        return int(context.params["last"])

    assert last("-n", "3") == last("--last", "3") == 3
    assert last() in (20, 100)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("jar", "topo submit TARGET"),
        ("set_log_level", "topo logs --set LOGGER=LEVEL:SECS NAME"),
        ("set-log-level", "topo logs --set LOGGER=LEVEL:SECS NAME"),
        ("monitor", "topo stats --watch NAME"),
        ("tail", "topo logs -f NAME"),
    ],
)
def test_commands_of_storm_and_streamparse_are_answered_with_topos(
    command: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "words"]) == 2
    lines = capsys.readouterr().err.splitlines()
    whose = "streamparse" if command == "tail" else "Storm"
    assert lines[0] == f"error: no command {command!r}, which is {whose}'s"
    assert lines[-1] == f"  hint: {hint}"


STORMS_COMMANDS = """
    activate admin blobstore classpath deactivate dev-zookeeper drpc drpc-client get-errors
    heartbeats jar kill kill_workers list local localconfvalue logviewer monitor nimbus
    node-health-check pacemaker rebalance remoteconfvalue repl server_classpath set_log_level shell
    sql supervisor ui upload-credentials version
    """


def test_every_command_of_storm_is_there_or_answered() -> None:
    commands = STORMS_COMMANDS.split()
    assert [name for name in commands if not (name in COMMANDS or foreign.answer_to(name))] == []


def test_every_answer_names_a_command_that_is_there() -> None:
    for answers in (foreign._STORM, foreign._STREAMPARSE):
        assert not set(answers) & set(COMMANDS)
        for hint in answers.values():
            for part in hint.split("topo ")[1:]:
                word = part.split()[0].rstrip(",")
                assert word in COMMANDS or word.startswith("--"), hint


# -- completion ------------------------------------------------------------------------------------


def completed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], line: str
) -> list[str]:
    words = line.split(" ")
    monkeypatch.setenv("_TOPO_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert run([]) == 0
    answers = capfd.readouterr().out.split()
    return [answer.partition(",")[2] for answer in answers]


def test_names_of_topologies_and_components_are_completed(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    topology = reading(FromList([1])).to_bytes()
    make(registry, "words", topology)
    make(registry, "clicks", topology)
    over = make(registry, "worn", topology)
    say(over, status="KILLED")
    assert completed(monkeypatch, capfd, "topo act") == ["activate"]
    assert completed(monkeypatch, capfd, "topo stats wo") == ["words", "worn"]
    assert completed(monkeypatch, capfd, "topo deactivate ") == ["clicks", "words"]
    assert completed(monkeypatch, capfd, "topo logs words l") == ["list"]
    assert completed(monkeypatch, capfd, "topo logs nowhere l") == []


def test_completion_of_a_broken_registry_is_silent(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("topo.toml").write_text("no toml [")
    assert completed(monkeypatch, capfd, "topo stats ") == []
