"""`topo acker`: what it refuses to start as, and what it says then."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.cli.root import run
from topo.tracking.server import AckerServer


def refused(
    capsys: pytest.CaptureFixture[str], *options: str, code: int, says: str, hint: str = ""
) -> None:
    assert run(["acker", *options]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert f"hint: {hint}" in said.err if hint else "hint" not in said.err


def test_an_address_that_others_reach_needs_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    refused(
        capsys,
        *("--bind", "0.0.0.0:0"),
        code=2,
        says="an acker at 0.0.0.0:0 would be open to everyone who reaches it",
        hint="give it an admission token, or bind to 127.0.0.1",
    )


def test_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    refused(
        capsys,
        *("--bind", "7070:"),
        code=2,
        says="'7070:' is no address to bind to",
        hint="write host:port, such as 127.0.0.1:7070",
    )


def test_a_taken_port(capsys: pytest.CaptureFixture[str]) -> None:
    with AckerServer() as server:
        refused(
            capsys,
            *("--bind", server.address),
            code=5,
            says=f"cannot listen on {server.address}",
            hint="is the port taken? port 0 takes any free one",
        )


def test_a_taken_port_for_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with AckerServer() as server:
        refused(
            capsys,
            *("--metrics", server.address),
            code=5,
            says=f"cannot listen on {server.address}: address already in use",
            hint="is the port taken? port 0 takes any free one",
        )


def test_half_a_tls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    some = tmp_path / "some.pem"
    some.write_text("x")
    refused(
        capsys,
        *("--tls-cert", str(some)),
        code=2,
        says="TLS has a certificate and no key",
        hint="name the key's file as well",
    )
    refused(
        capsys,
        *("--tls-ca", str(some)),
        code=2,
        says="--tls-ca asks for certificates of clients, which takes TLS",
        hint="give --tls-cert and --tls-key as well",
    )


def test_token_files_that_are_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    none = tmp_path / "none"
    refused(
        capsys,
        *("--token-file", str(none)),
        code=2,
        says=f"cannot read {none}: no such file or directory",
    )
    none.write_text("\nsecond line\n")
    refused(
        capsys,
        *("--token-file", str(none)),
        code=2,
        says=f"{none} is empty",
        hint="its first line is the token",
    )
