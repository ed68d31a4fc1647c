"""Files that are submitted by the form of the pages: what becomes of them, and of wrong ones."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ui.conftest import Serve
from tests.ui.worlds import World

PATH = "/api/submissions"
OLD = 1e9
Answer = tuple[int, bytes, bytes]
STARTED: Answer = (0, b'hello\n{"name": "words", "status": "STARTING"}\n', b"")


def failed(exit_code: int, **error: str) -> Answer:
    """What `topo submit --json` ends with, if something is wrong."""
    return exit_code, b"", b"a warning\n" + json.dumps({"error": error}).encode()


def submission(text: bytes = b"", file: str = "wordcount.py", **more: Any) -> dict[str, Any]:
    return {"file": file, "content": base64.b64encode(text).decode(), **more}


def zipped(*files: str, text: str = "x = 1\n") -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(file, text)
    return written.getvalue()


class Commands:
    """The commands that would have been run, and what each of them found in its directory."""

    def __init__(self) -> None:
        self.arguments: list[list[str]] = []
        self.files: list[list[str]] = []
        self.directories: list[Path] = []
        self.answer = STARTED

    def run(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        there = Path(options["cwd"])
        self.arguments.append(command[command.index("topo.cli") + 1 :])
        self.files.append(
            sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file())
        )
        self.directories.append(there)
        return subprocess.CompletedProcess(command, *self.answer)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands()
    monkeypatch.setattr("topo.manage.commands.subprocess.run", made.run)
    return made


@pytest.fixture
def client(serve: Serve) -> Callable[[], httpx.Client]:
    return serve(allow_submit=True).client


def uploads(world: World) -> list[Path]:
    return sorted((world.registry.home / "uploads").glob("*"))


def test_a_file_is_submitted_as_the_command_would(
    world: World, client: Callable[[], httpx.Client], commands: Commands
) -> None:
    given = submission(
        b"topology = 1\n", name="words", args="--limit 'two words'", active=False, state="fresh",
        conf={"topology.workers": 2, "my.key": ["<b>"]}, master="local[2]",
    )  # fmt: skip
    with client() as asking:
        answer = asking.post(PATH, json=given)
    assert (answer.status_code, answer.json()) == (
        202, {"name": "words", "status": "STARTING", "was": ""}
    )  # fmt: skip
    assert commands.arguments == [
        ["submit", "--json", "--wait", "0", "--master=local[2]", "--name=words",
         "-c", "topology.workers=2", "-c", 'my.key=["<b>"]', "--inactive", "--fresh",
         "wordcount.py", "--", "--limit", "two words"]
    ]  # fmt: skip
    (directory,) = uploads(world)
    assert (directory / "wordcount.py").read_bytes() == b"topology = 1\n"
    assert directory.stat().st_mode & 0o077 == 0


def test_a_zip_is_unpacked_within_its_directory(
    world: World, client: Callable[[], httpx.Client], commands: Commands
) -> None:
    inside = zipped("main.py", "shop/__init__.py", "shop/prices.py", "../../up.py", "/root.txt")
    with client() as asking:
        asking.post(PATH, json=submission(inside, "shop.zip", target="main.py:build"))
        assert commands.arguments[-1][-2:] == ["main.py:build", "--"]
        asking.post(PATH, json=submission(zipped("one.yaml", "lib/two.py"), "shop.zip"))
        assert commands.arguments[-1][-2:] == ["one.yaml", "--"]
        open_choice = asking.post(PATH, json=submission(zipped("a.py", "b.py"), "shop.zip"))
    expected = ["main.py", "root.txt", "shop/__init__.py", "shop/prices.py", "up.py"]
    assert commands.files[0] == expected
    assert open_choice.status_code == 400
    assert "a.py, b.py" in open_choice.json()["message"]
    assert len(uploads(world)) == 2


WRONG: list[tuple[dict[str, Any], str]] = [
    (submission(file="../wordcount.py"), "no name of a file"),
    (submission(file="-c.py"), "no name of a file"),
    (submission(file=".py"), "no name of a file"),
    (submission(file="a\0b.py"), "no name of a file"),
    (submission(file=f"{'x' * 200}.py"), "no name of a file"),
    (submission(file="words.jar"), ".py, .yaml, .yml, .zip"),
    (submission(content="not base64!"), "not base64"),
    (submission(target="--master=x"), "no target"),
    (submission(args="'open"), "No closing quotation"),
    (submission(state="perhaps"), "refuse, resume, fresh"),
    (submission(conf=[1]), "JSON object"),
    (submission(b"PK\3\4 garbage", "shop.zip"), "cannot be unpacked"),
    (submission(zipped(*(f"{n}.py" for n in range(10_001)), text=""), "a.zip"), "too large"),
    ({"file": "words.py"}, "content is missing"),
]


def test_what_is_wrong_with_a_submission_is_said_before_any_process_is_started(
    world: World, client: Callable[[], httpx.Client], commands: Commands
) -> None:
    with client() as asking:
        for document, words in WRONG:
            answer = asking.post(PATH, json=document)
            assert answer.status_code == 400, words
            assert words in f"{answer.json()['message']} {answer.json()['hint']}"
    assert (commands.arguments, uploads(world)) == ([], [])


ERRORS: list[tuple[Answer, int, str, str]] = [
    (failed(1, code="target", message="wordcount.py raised KeyError: 'x'", at="lib.py:3"),
     400, "wordcount.py raised KeyError: 'x' (at lib.py:3)",
     "topo local wordcount.py shows the traceback"),
    (failed(2, code="config", message="no key 'a.b'", at="-c a.b=1", hint="did you mean 'c'?"),
     400, "no key 'a.b' (at a.b=1)", "did you mean 'c'?"),
    (failed(4, code="run", message="words is ACTIVE", hint="topo kill words, or -n another"),
     409, "words is ACTIVE", "topo kill words, or another name"),
    (failed(2, code="checkpoint", message="words has a checkpoint", hint="--resume or --fresh"),
     409, "words has a checkpoint", "state: resume or fresh"),
    (failed(5, code="missing-extra", message="no pyspark", hint="pip install"),
     503, "no pyspark", "pip install"),
    ((3, b"", b"bye\n"), 400,
     "wordcount.py ended the process that imported it (exit code 3): bye",
     "a module that is imported may not end its process"),
    ((0, b"", b""), 400, "wordcount.py ended the process that imported it (exit code 0)",
     "a module that is imported may not end its process"),
    ((0, b'["no document"]', b""), 400, "wordcount.py ended the process that imported it", ""),
]  # fmt: skip


def test_the_errors_of_the_command_come_in_words_and_nothing_is_left(
    world: World, client: Callable[[], httpx.Client], commands: Commands
) -> None:
    with client() as asking:
        for commands.answer, status, message, hint in ERRORS:
            given = asking.post(PATH, json=submission())
            found = given.json()
            said = (given.status_code, found["message"], found["hint"])
            assert said == (status, message, hint)
            assert uploads(world) == []


def test_a_file_whose_import_does_not_end_is_refused_unless_it_runs(
    world: World, client: Callable[[], httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    begins = iter([False, True])

    def hang(command: list[str], **options: Any) -> None:
        if next(begins):
            file = world.add("words").directory / "submission.json"
            moved = json.loads(file.read_text()) | {"code_directory": str(options["cwd"])}
            file.write_text(json.dumps(moved))
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr("topo.manage.commands.subprocess.run", hang)
    with client() as asking:
        answer = asking.post(PATH, json=submission())
        assert (answer.status_code, uploads(world)) == (400, [])
        assert answer.json()["message"] == "wordcount.py was not imported in 60 s"
        begun = asking.post(PATH, json=submission())
    assert (begun.status_code, begun.json()["name"]) == (202, "words")
    assert len(uploads(world)) == 1


def test_a_registry_that_cannot_be_written_is_said(
    world: World, client: Callable[[], httpx.Client]
) -> None:
    world.registry.home.mkdir(exist_ok=True)
    (world.registry.home / "uploads").write_text("")
    with client() as asking:
        answer = asking.post(PATH, json=submission())
    assert (answer.status_code, answer.json()["hint"]) == (503, "topo doctor")


def test_code_stays_as_long_as_a_run_has_it(
    world: World, client: Callable[[], httpx.Client], commands: Commands
) -> None:
    with client() as asking:
        for _ in range(3):
            asking.post(PATH, json=submission())
        used, unused, young = commands.directories
        run = world.add("words", "KILLED")
        file = run.directory / "submission.json"
        moved = json.loads(file.read_text()) | {"code_directory": str(used / "deeper")}
        file.write_text(json.dumps(moved))
        for old in (used, unused):
            os.utime(old, (OLD, OLD))
        asking.post(PATH, json=submission())
        assert [each.exists() for each in (used, unused, young)] == [True, False, True]
        file.write_text("[")  # whose code it is cannot be told any more
        os.utime(young, (OLD, OLD))
        asking.post(PATH, json=submission())
    assert [each.exists() for each in (used, young)] == [True, True]


def test_only_who_operates_may_submit_a_file_and_only_where_it_is_allowed(
    world: World, serve: Serve, commands: Commands
) -> None:
    with serve().client() as client:
        assert client.post(PATH, json=submission()).status_code == 404
        assert client.get("/api/session").json()["allows_submit"] is False
    with serve(allow_submit=True, read_only=True).client() as client:
        assert client.post(PATH, json=submission()).status_code in (403, 404)
        assert client.get("/api/session").json()["allows_submit"] is False
    site = serve(allow_submit=True)
    with site.client("view") as client:
        assert client.post(PATH, json=submission()).status_code == 403
    with site.client(None) as client:
        assert client.post(PATH, json=submission()).status_code == 401
    with site.browser() as client:
        assert client.post(PATH, json=submission()).status_code == 403
        session = client.get("/api/session").json()
        assert session["allows_submit"] is True
        headers = {"X-Topo-CSRF": session["csrf"]}
        elsewhere = headers | {"Origin": "http://evil.example"}
        assert client.post(PATH, json=submission(), headers=elsewhere).status_code == 403
        assert commands.arguments == []
        ours = headers | {"Origin": site.url}
        assert client.post(PATH, json=submission(), headers=ours).status_code == 202


@pytest.mark.server
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nimport nothing_such\n", "No module named 'nothing_such' (at wordcount.py:2)"),
        ("def topology(:\n", "SyntaxError: invalid syntax (at wordcount.py:1)"),
        ("def f():\n    return 1 / 0\n\nf()\n", "division by zero (at wordcount.py:2)"),
        ("x = 1\n", "wordcount.py has no 'topology'"),
        ("import os\nos._exit(3)\n", "ended the process that imported it (exit code 3)"),
    ],
)
def test_a_real_process_says_what_is_wrong_with_a_file(
    world: World, client: Callable[[], httpx.Client], text: str, message: str
) -> None:
    with client() as asking:
        asking.timeout = 60
        answer = asking.post(PATH, json=submission(text.encode()))
    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert "Traceback" not in answer.text
    assert uploads(world) == []
