"""The server of figures without web pages, and who may hold it up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from topo.config.masters import split_address
from topo.metrics.serving import FigureServer


def served(**options: float) -> FigureServer:
    return FigureServer(
        "127.0.0.1", 0, {"/": lambda accept, query: (b"x 1\n", "text/plain")}, **options
    )


@pytest.fixture
def patient() -> Iterator[FigureServer]:
    """A server that cuts nobody off for its slowness."""
    server = served(request_secs=600)
    yield server
    server.stop()


def test_the_oldest_of_many_silent_connections_makes_room(patient: FigureServer) -> None:
    before = threading.active_count()
    silent = [socket.create_connection(split_address(patient.address)) for _ in range(200)]
    try:
        for _ in range(3):
            assert httpx.get(f"http://{patient.address}/").text == "x 1\n"
        assert silent[0].recv(1) == b""
        while threading.active_count() > before + 70:
            pass  # those that were cut off end
    finally:
        for each in silent:
            each.close()


def test_a_request_that_takes_too_long_is_cut_off() -> None:
    server = served(request_secs=0.1)
    try:
        with socket.create_connection(split_address(server.address)) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
            slow.settimeout(60)
            assert slow.recv(1) == b""
        assert httpx.get(f"http://{server.address}/").text == "x 1\n"
    finally:
        server.stop()


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
    patient: FigureServer, host: str, status: int
) -> None:
    answer = httpx.get(f"http://{patient.address}/", headers={"Host": host})
    assert answer.status_code == status


def test_beyond_loop_back_any_name_is_asked_for() -> None:
    server = FigureServer("0.0.0.0", 0, {"/": lambda accept, query: (b"x 1\n", "text/plain")})
    port = split_address(server.address)[1]
    try:
        asked = httpx.get(f"http://127.0.0.1:{port}/", headers={"Host": "worker-3.example"})
        assert asked.status_code == 200
    finally:
        server.stop()
