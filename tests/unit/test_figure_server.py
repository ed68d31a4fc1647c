"""The server of figures without web pages, and who may hold it up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from topo.config.masters import split_address
from topo.serving import connections
from topo.serving.figures import FigureServer


@pytest.fixture
def server() -> Iterator[FigureServer]:
    """A server of one page on loop-back."""
    server = served("127.0.0.1:0")
    yield server
    server.stop()


def served(bind: str) -> FigureServer:
    return FigureServer(bind, {"/": lambda accept, query: (b"x 1\n", "text/plain")})


def test_the_oldest_of_many_silent_connections_makes_room(
    server: FigureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 600.0)
    silent = [socket.create_connection(split_address(server.address)) for _ in range(200)]
    try:
        for _ in range(3):
            assert httpx.get(f"http://{server.address}/").text == "x 1\n"
        silent[0].settimeout(60)
        assert silent[0].recv(1) == b""
    finally:
        for each in silent:
            each.close()


def test_a_request_that_takes_too_long_is_cut_off(
    server: FigureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 0.1)
    with socket.create_connection(split_address(server.address)) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
        slow.settimeout(60)
        assert slow.recv(1) == b""
    assert httpx.get(f"http://{server.address}/").text == "x 1\n"


def test_a_page_that_is_in_work_when_the_server_ends_is_answered() -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def page(accept: str, query: object) -> tuple[bytes, str]:
        asked.set()
        may_answer.wait()
        return b"late\n", "text/plain"

    server = FigureServer("127.0.0.1:0", {"/": page})
    with ThreadPoolExecutor(2) as threads:
        answer = threads.submit(httpx.get, f"http://{server.address}/", timeout=60)
        asked.wait()
        ended = threads.submit(server.stop)
        may_answer.set()
        assert answer.result().text == "late\n"
        ended.result()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{server.address}/")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("[::1", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost:99", 200),
        ("127.0.0.1", 200),
        ("[::1]:99", 200),
    ],
)
def test_on_loop_back_another_hosts_name_is_refused(
    server: FigureServer, host: str, status: int
) -> None:
    answer = httpx.get(f"http://{server.address}/", headers={"Host": host})
    assert answer.status_code == status


def test_beyond_loop_back_any_name_is_asked_for() -> None:
    server = served("0.0.0.0:0")
    port = split_address(server.address)[1]
    try:
        asked = httpx.get(f"http://127.0.0.1:{port}/", headers={"Host": "worker-3.example"})
        assert asked.status_code == 200
    finally:
        server.stop()
