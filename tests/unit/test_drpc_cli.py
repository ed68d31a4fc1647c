"""`topo drpc` and `topo drpc call`: what they refuse, and a call from a shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drpc import Computing
from topo.cli.root import run


@pytest.fixture
def computing(tmp_path: Path) -> Iterator[Computing]:
    def echo(function: str, args: str) -> str:
        if args == "bad":
            raise ValueError("no such page")
        return f"{function}({args})"

    with Computing(echo, ["f", "g"]) as server:
        (tmp_path / "token").write_text(f"{Computing.token}\n")
        yield server


def test_a_function_is_called_once_for_each_argument(
    computing: Computing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--at", computing.server.address, "--token-file", str(tmp_path / "token"))
    assert run(["drpc", "call", "f", "a", "b", *at]) == 0
    assert capsys.readouterr().out == "f(a)\nf(b)\n"
    assert run(["drpc", "call", "f", *at]) == 0
    assert capsys.readouterr().out == "f()\n"
    assert run(["drpc", "call", "f", "a", "g", "b", "--pairs", *at]) == 0
    assert capsys.readouterr().out == "f(a)\ng(b)\n"
    assert run(["drpc", "call", "f", "a", "--json", *at]) == 0
    assert '"result": "f(a)"' in capsys.readouterr().out


def test_a_call_that_fails_says_why(
    computing: Computing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--at", computing.server.address, "--token-file", str(tmp_path / "token"))
    assert run(["drpc", "call", "f", "bad", *at]) == 1
    assert "no such page" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "no function to call"),
        (("f", "a", "g", "--pairs"), "3 arguments are no pairs"),
        (("f", "--at", "m1:1", "--name", "x"), "exclude each other"),
        (("f", "--name", "nobody"), "no topology 'nobody'"),
        (("f", "--token-file", "nowhere"), "cannot read nowhere"),
    ],
)
def test_a_call_that_cannot_be(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drpc", "call", *options]) != 0
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--grpc", "0.0.0.0:0"), "could know the token"),
        (("--grpc", "7:"), "is no address to bind to"),
        (("--token-file", "nowhere"), "cannot read nowhere"),
        (("--acl", "nowhere"), "cannot read nowhere"),
        (("--tls-cert", "nowhere"), "a certificate and no key"),
    ],
)
def test_a_server_that_cannot_be(
    options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drpc", *options]) != 0
    assert words in capsys.readouterr().err


def test_the_figures_of_a_server(computing: Computing) -> None:
    from topo.drpc.exposition import for_people, for_prometheus

    text, _ = for_prometheus(computing.server.figures)
    assert b"topo_drpc_requests_total 0.0" in text
    assert b'topo_drpc_seconds_bucket{le="+Inf"} 0.0' in text
    assert for_people(computing.server.figures).startswith("0 calls\n")
