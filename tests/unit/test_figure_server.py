"""The server of figures without web pages, and who may hold it up."""

from __future__ import annotations

import logging
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.certificates import make_certificates
from topo.config.masters import split_address
from topo.serving import connections
from topo.serving.figures import MOST_CONNECTIONS, FigureServer, page_app
from topo.serving.listening import address_of, listening
from topo.serving.server import ServerThread, WebServer


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


def test_no_more_are_held_if_many_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 600.0)
    may_accept = threading.Event()
    started = WebServer.startup

    async def later(self: WebServer, sockets: object = None) -> None:
        may_accept.wait()
        await started(self, sockets)

    monkeypatch.setattr(WebServer, "startup", later)
    server = served("127.0.0.1:0")
    with ExitStack() as stack:
        at = split_address(server.address)
        first = stack.enter_context(socket.create_connection(at, timeout=60))
        first.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        silent = [stack.enter_context(socket.create_connection(at)) for _ in range(120)]
        may_accept.set()
        assert first.recv(9) == b"HTTP/1.1 ", "it was closed before it was read"
        assert httpx.get(f"http://{server.address}/").text == "x 1\n"
        cut, _, _ = select.select(silent, [], [], 0)
        assert len(cut) > 120 - MOST_CONNECTIONS
    server.stop()


def test_a_request_that_takes_too_long_is_cut_off(
    server: FigureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 0.1)
    with socket.create_connection(split_address(server.address)) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
        slow.settimeout(60)
        assert slow.recv(1) == b""
    assert httpx.get(f"http://{server.address}/").text == "x 1\n"


def test_who_does_not_begin_tls_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_certificates(tmp_path)

    @contextmanager
    def encrypted() -> Iterator[str]:
        listener = listening("127.0.0.1:0")
        app = page_app({"/": lambda accept, query: (b"x 1\n", "text/plain")}, "127.0.0.1:0")
        certificate, key = str(files / "server.pem"), str(files / "server.key")
        server = WebServer(app, [listener], certificate=certificate, key=key)
        thread = ServerThread(server, "test")
        yield address_of(listener, "127.0.0.1:0")
        thread.stop()

    trusted = ssl.create_default_context(cafile=str(files / "ca.pem"))
    with encrypted() as address:
        assert httpx.get(f"https://{address}/", verify=trusted, timeout=60).text == "x 1\n"
    monkeypatch.setattr("topo.serving.server.HANDSHAKE_SECS", 0.1)
    with encrypted() as address, socket.create_connection(split_address(address)) as silent:
        silent.settimeout(50)  # uvicorn waits for a minute
        assert silent.recv(1) == b""


def test_a_large_answer_may_be_read_for_longer_than_a_head_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 0.05)
    large = b"x" * 30_000_000
    server = FigureServer("127.0.0.1:0", {"/": lambda accept, query: (large, "text/plain")})
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.settimeout(60)
        slow.connect(split_address(server.address))
        slow.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        read = len(slow.recv(4096))
        with socket.create_connection(split_address(server.address), timeout=60) as silent:
            assert silent.recv(1) == b""  # a head's time is over, of one that came later
        while read < len(large):
            some = len(slow.recv(1 << 20))
            assert some, f"the connection ended after {read} bytes"
            read += some
    server.stop()


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01 of TLS\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /no HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n",
    ],
    ids=["no HTTP", "an upgrade", "no chunk", "no chunk, at once"],
)
def test_what_is_malformed_fills_no_log(
    server: FigureServer, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(split_address(server.address), timeout=60) as stranger:
        stranger.sendall(said)
        assert stranger.recv(9) == b"HTTP/1.1 "
        with suppress(ConnectionError):  # it ended already
            stranger.sendall(b"no chunk\r\n" if b"chunked" in said else b"")
            while stranger.recv(4096):
                pass
    server.stop()  # with whatever it has to say
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


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


def test_what_outlives_the_end_of_its_server_is_no_mistake_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def page(accept: str, query: object) -> tuple[bytes, str]:
        asked.set()
        may_answer.wait()
        return b"late\n", "text/plain"

    listener = listening("127.0.0.1:0")
    server = WebServer(page_app({"/": page}, "127.0.0.1:0"), [listener], grace_secs=0.0)
    thread = ServerThread(server, "test")
    with socket.create_connection(listener.getsockname(), timeout=60) as asking:
        asking.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        asked.wait()
        thread.stop()
        may_answer.set()
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


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
