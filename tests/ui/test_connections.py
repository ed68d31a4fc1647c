"""Strangers that hold connections, and patterns that would hold up the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest

from tests.ui.conftest import Site
from tests.ui.worlds import World
from topo.logs.search import Search
from topo.serving import connections
from topo.serving.connections import LimitedConnection

HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: "


@contextmanager
def opened(site: Site, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have said something, and say no more."""
    at = urlsplit(site.url)
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(stack.enter_context(socket.create_connection((at.hostname, at.port))))
            held[-1].settimeout(60)
            held[-1].sendall(said)
        yield held


def test_many_half_heads_keep_nobody_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 600.0)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    with opened(site, 40, HALF_A_HEAD) as held, site.client() as client:
        for _ in range(3):
            assert client.get("/api/topologies").status_code == 200
        assert is_cut(held[0])


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("HEAD_SECS", b""),
        ("HEAD_SECS", HALF_A_HEAD),
        ("BODY_SECS", b"POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n{"),
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_what_does_not_come_is_waited_for_for_seconds(
    site: Site, monkeypatch: pytest.MonkeyPatch, limit: str, said: bytes
) -> None:
    monkeypatch.setattr(connections, limit, 0.1)
    said = said.replace(b"{host}", urlsplit(site.url).netloc.encode())
    with opened(site, 1, said) as (slow,):
        assert is_cut(slow)


def test_a_second_head_on_a_connection_has_its_time_as_well(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 0.3)
    whole = f"GET /healthz HTTP/1.1\r\nHost: {urlsplit(site.url).netloc}\r\n\r\n".encode()
    with opened(site, 1, whole) as (slow,):
        assert slow.recv(4096).startswith(b"HTTP/1.1 200")
        slow.sendall(HALF_A_HEAD)
        assert is_cut(slow)


def test_who_does_not_read_is_cut_off(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "READ_SECS", 0.1)
    at = urlsplit(site.url)
    request = f"GET /static/style.css HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n".encode()
    with socket.socket() as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.connect((at.hostname, at.port))
        greedy.settimeout(60)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_for_ever(greedy, request)


def send_for_ever(to: socket.socket, request: bytes) -> None:
    while True:
        to.sendall(request * 100)


def is_cut(held: socket.socket) -> bool:
    """Read until the server ends the connection; a socket that times out raises."""
    try:
        while held.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_answers_do_not_wait_for_receipts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    options = []
    before = LimitedConnection.connection_made

    def noted(self: LimitedConnection, transport: object) -> None:
        accepted = transport.get_extra_info("socket")  # type: ignore[attr-defined]
        options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        before(self, transport)  # type: ignore[arg-type]

    monkeypatch.setattr(LimitedConnection, "connection_made", noted)
    with site.client(None) as client:
        assert client.get("/healthz").status_code == 200
    assert options
    assert all(options)


def test_a_viewers_pattern_holds_up_nobody(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.ui.api.Search", partial(Search, secs=0.3))
    run = world.add("words")
    world.log(run, "a" * 40 + "!")
    answers: list[httpx.Response] = []

    def search() -> None:
        with site.client("view", timeout=60) as viewer:
            answers.append(viewer.get("/api/topologies/words/logs", params={"grep": "(a+)+$"}))

    viewer = threading.Thread(target=search)
    viewer.start()
    with site.client(None) as client:
        while viewer.is_alive():
            assert client.get("/healthz").status_code == 200
    viewer.join()
    assert answers[0].status_code == 400
    assert "took more than 0.3 s" in answers[0].json()["message"]


def test_a_stream_of_log_lines_says_that_its_pattern_takes_too_long(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.ui.api.Search", partial(Search, secs=0.3))
    run = world.add("words")
    world.log(run, "a" * 40 + "!")
    path = "/api/topologies/words/logs/events"
    with (
        site.client("view", timeout=60) as viewer,
        viewer.stream("GET", path, params={"grep": "(a+)+$"}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: problem"
        assert "took more than 0.3 s" in next(lines)
