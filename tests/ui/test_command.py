"""The command `topo ui`: what it prints, how it ends, what comes with the package."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest

import topo
from tests.interrupts import heed_ctrl_c
from topo.cli.root import run
from topo.cli.ui import _opened
from topo.manage.registry import Registry
from topo.ui.security import Tokens

ROOT = Path(topo.__file__).parent


def test_it_serves_until_it_is_told_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "topo.cli", "ui", "--bind", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            with httpx.Client(follow_redirects=True) as client:
                assert client.get(said["link"]).status_code == 200
                found = client.get(f"{said['url']}/api/topologies").json()
                assert found["topologies"] == []
                assert client.get(f"{said['url']}/static/app.js").status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert b"Traceback" not in errors
    assert process.returncode in (0, -signal.SIGTERM)


def test_ctrl_c_ends_it_without_a_word_while_a_page_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "topo.cli", "ui", "--bind", "127.0.0.1:0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_ctrl_c
    ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        with httpx.Client(follow_redirects=True, timeout=60) as client:
            client.get(said["link"])
            with client.stream("GET", f"{said['url']}/api/events") as page:
                lines = page.iter_lines()
                assert next(line for line in lines if line.startswith("event:"))
                process.send_signal(signal.SIGINT)
                assert list(lines)[-1] == ""
        _, errors = process.communicate(timeout=60)
    assert errors.strip() == b""
    assert process.returncode == 130


def test_the_browsers_command_line_has_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, int]] = []

    def browse(address: str) -> bool:
        page = Path(address.removeprefix("file://"))
        seen.append((address, page.read_text(), page.stat().st_mode & 0o777))
        return True

    monkeypatch.setattr("webbrowser.open", browse)
    token = "operate&<token>"
    with _opened(f"http://127.0.0.1:8321/login?token={token}"):
        ((address, page, mode),) = seen
        assert token not in address
        assert 'content="0;url=http://127.0.0.1:8321/login?token=operate&amp;&lt;token&gt;"' in page
        assert mode == 0o600
    assert not Path(address.removeprefix("file://")).exists()


def test_tokens_are_printed_and_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert run(["ui", "token", "--role", "view"]) == 0
    view = capsys.readouterr().out.strip()
    assert Tokens(Registry(tmp_path / "home").home).role_of(view) == "view"
    assert run(["ui", "token", "--renew", "--json"]) == 0
    operate = json.loads(capsys.readouterr().out)["token"]
    tokens = Tokens(tmp_path / "home")
    assert (tokens.role_of(operate), tokens.role_of(view)) == ("operate", None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--bind", "0.0.0.0:0"], "plain text"),
        (["--bind", "127.0.0.1:0", "--tls-cert", "nowhere.pem"], "a certificate and its key"),
        (["--bind", "nowhere"], ""),
    ],
)
def test_what_cannot_be_served_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    says: str,
) -> None:
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert run(["ui", *options]) in (2, 5)
    assert says in capsys.readouterr().err


def test_every_file_of_the_pages_is_in_the_package() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["topo"]
    files = [path for path in (ROOT / "ui").rglob("*") if path.suffix not in (".py", ".pyc")]
    names = [path.relative_to(ROOT).as_posix() for path in files if path.is_file()]
    assert "ui/static/index.html" in names
    assert [name for name in names if not any(fnmatch(name, one) for one in patterns)] == []


def test_the_pages_name_no_other_server() -> None:
    for path in (ROOT / "ui" / "static").iterdir():
        text = path.read_text().replace("http://www.w3.org/", "")
        assert "://" not in text.replace(r":\/\/", ""), path.name
        assert "innerHTML" not in text, path.name
