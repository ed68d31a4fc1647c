"""WebSocketSpout and SocketSpout with servers of the test's own."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

from tests.connectors.moving import Collects, Keeps, counters, moved_until
from tests.servers.processes import free_port
from tests.wiring import line
from topo import ComponentError, Spout, TopologyBuilder
from topo.connectors.socket import SocketSpout
from topo.connectors.websocket import WebSocketSpout
from topo.takeover import close_earlier
from topo.testing import TestCluster


class Receiving:
    """A topology that receives, in a test's hands."""

    def __init__(self, spout: Spout, bolt: Any = None) -> None:
        self.cluster = TestCluster()
        self.run = self.cluster.submit_topology("t", line(spout, bolt or Keeps()))

    def until(self, condition: Callable[[], Any], secs: float = 0.01) -> None:
        moved_until(self.cluster, condition, secs)

    def values(self) -> list[Any]:
        return [row[0] for row in self.run.tuples("s")]

    def connected(self) -> bool:
        return bool(self.run.stats().components["s"].gauges.get("connected"))


@pytest.fixture
def receiving() -> Iterator[Callable[..., Receiving]]:
    made: list[Receiving] = []

    def make(*values: Any) -> Receiving:
        made.append(Receiving(*values))
        return made[-1]

    Collects.counts.clear()
    Collects.rolls_back = False
    yield make
    for one in made:
        with contextlib.suppress(Exception):
            one.run.kill()


# -- websockets -----------------------------------------------------------------------------------


class Server:
    """A websocket server: numbers after the one that it is told, so many a connection."""

    def __init__(self, count: int, each: int) -> None:
        self.heard: list[str] = []
        self.held = threading.Event()

        def handle(connection: Any) -> None:
            with contextlib.suppress(ConnectionClosed):
                said = connection.recv()
                self.heard.append(said)
                first = json.loads(said)["after"] + 1
                for number in range(first, min(first + each, count)):
                    connection.send(json.dumps({"n": number}))
                if first + each >= count:
                    self.held.wait(30)

        self._server = serve(handle, "127.0.0.1", 0)
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.held.set()
        self._server.shutdown()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(100, 30)
    yield made
    made.close()


HELLO = '{"after": -1}'


def resuming(server: Server, **more: Any) -> WebSocketSpout:
    return WebSocketSpout(
        server.url,
        hello=HELLO,
        position=lambda text: json.loads(text)["n"],
        resume=lambda last: json.dumps({"after": last}),
        value="json",
        fields="n",
        **more,
    )


def test_messages_resume_where_the_server_was(server: Server, receiving: Any) -> None:
    one = receiving(resuming(server, max_in_flight=10))
    while len(one.values()) < 100:
        before = len(one.values())
        one.until(lambda: len(one.values()) > before)  # noqa: B023
        one.run.restart()
    assert one.values() == list(range(100))
    assert [json.loads(text)["after"] for text in server.heard] == [-1, 29, 59, 89]


def test_what_is_rolled_back_is_emitted_again(server: Server, receiving: Any) -> None:
    Collects.rolls_back = True
    one = receiving(resuming(server), Collects())
    one.until(lambda: len(Collects.counts) == 100, 0.25)
    assert set(Collects.counts.values()) == {1}


def test_a_new_process_asks_from_the_saved_position_on(server: Server, receiving: Any) -> None:
    one = receiving(resuming(server, max_in_flight=5))
    while len(one.values()) < 100:
        before = len(one.values())
        one.until(lambda: len(one.values()) > before)  # noqa: B023
        one.run.restart()
        close_earlier(_context(one))  # as if it had been the process's end
    assert one.values() == list(range(100))


def _context(one: Receiving) -> Any:
    """Return the context of the spout, whose instance a restart has taken away."""
    host: Any = one.run
    opened = host._opened()
    return opened.host.spouts[0].component.context


def test_a_server_that_is_away_is_waited_for(receiving: Any) -> None:
    port = free_port()
    one = receiving(WebSocketSpout(f"ws://127.0.0.1:{port}"))
    one.until(lambda: one.run.status == "STALLED", 0)
    assert f"ws://127.0.0.1:{port}: " in one.run.reason
    assert "refused" in one.run.reason
    with serve(lambda connection: connection.send("late"), "127.0.0.1", port) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        one.until(lambda: "late" in one.values(), 0.5)
        one.run.kill()
        server.shutdown()
        thread.join()


def test_a_handshake_that_is_refused_is_an_error(receiving: Any) -> None:
    def refuse(connection: Any, request: Any) -> Any:
        return connection.respond(401 if "X-Token" not in request.headers else 503, "no\n")

    with serve(lambda connection: None, "127.0.0.1", 0, process_request=refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        with pytest.raises(ComponentError, match="refuses the handshake: HTTP 401"):
            receiving(WebSocketSpout(url)).until(lambda: False)
        busy = receiving(WebSocketSpout(url, headers={"X-Token": "t"}))
        busy.until(lambda: busy.run.status == "STALLED", 0)
        assert "HTTP 503" in busy.run.reason
        server.shutdown()
        thread.join()


def test_a_message_that_is_too_large_is_an_error(receiving: Any) -> None:
    def handle(connection: Any) -> None:
        with contextlib.suppress(ConnectionClosed):
            connection.send("x" * 1000)
            connection.recv()

    with serve(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        with pytest.raises(ComponentError, match="1009") as caught:
            receiving(WebSocketSpout(url, max_message=100)).until(lambda: False)
        assert "max_message=" in (caught.value.hint or "")
        server.shutdown()
        thread.join()


# -- sockets --------------------------------------------------------------------------------------


class Lines:
    """A server that sends to whoever connects what the test gives it."""

    def __init__(self, port: int = 0) -> None:
        self._server = socket.create_server(("127.0.0.1", port))
        self.port = int(self._server.getsockname()[1])
        self._server.settimeout(30)

    def accept(self) -> socket.socket:
        return self._server.accept()[0]

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def lines() -> Iterator[Lines]:
    made = Lines()
    yield made
    made.close()


def test_lines_come_over_connections_and_restarts(lines: Lines, receiving: Any) -> None:
    one = receiving(SocketSpout("127.0.0.1", lines.port))
    one.cluster.advance(0)
    with lines.accept() as connection:
        connection.sendall(b"one\ntw")
        one.until(lambda: one.values() == ["one"])
        one.run.restart()
        connection.sendall("o\r\nKäse\n".encode())
        one.until(lambda: len(one.values()) == 3)
    one.until(lambda: one.run.status == "STALLED", 0)
    assert f"127.0.0.1:{lines.port}: the connection is closed" in one.run.reason
    accepted: list[socket.socket] = []
    thread = threading.Thread(target=lambda: accepted.append(lines.accept()))
    thread.start()
    one.until(lambda: accepted, 0.25)
    thread.join()
    with accepted[0] as connection:
        connection.sendall(b"again\n")
        one.until(lambda: len(one.values()) == 4)
        one.run.kill()
    assert one.values() == ["one", "two", "Käse", "again"]


def test_a_full_queue_holds_the_server_back(lines: Lines, receiving: Any) -> None:
    one = receiving(SocketSpout("127.0.0.1", lines.port, max_in_flight=100))
    one.cluster.advance(0)
    text = b"x" * 1000 + b"\n"
    with lines.accept() as connection:
        connection.setblocking(False)
        sent, pause = 0, threading.Event()
        for _ in range(50):  # until nothing more goes in
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent += connection.send((text * 100)[sent % len(text) :])
            pause.wait(0.01)
        host: Any = one.run
        assert len(host._host.spouts[0].component._feed._queue) <= 100
        whole, rest = divmod(sent, len(text))

        def all_sent() -> bool:
            nonlocal rest, whole
            with contextlib.suppress(BlockingIOError):
                rest += connection.send(text[rest:]) if rest else 0
            if rest == len(text):
                whole, rest = whole + 1, 0
            return not rest

        one.until(lambda: all_sent() and len(one.values()) >= whole)
        assert one.values() == ["x" * 1000] * whole
        one.run.kill()


def test_lines_that_cannot_be_read(lines: Lines, receiving: Any) -> None:
    spout = SocketSpout("127.0.0.1", lines.port, value="json", fields="n", on_bad="stream")
    one = receiving(spout)
    one.cluster.advance(0)
    with lines.accept() as connection:
        connection.sendall(b'{"n": 1}\n{\n\n{"n": 2}\n')
        one.until(lambda: counters(one.run).get("received", 0) == 4)
        assert one.values() == [1, 2]
        assert [row[0] for row in one.run.tuples("s", "bad")] == [b"{", b""]
        one.run.kill()
    long = receiving(SocketSpout("127.0.0.1", lines.port, max_line=10))
    long.cluster.advance(0)
    with lines.accept() as connection:
        connection.sendall(b"x" * 11)
        with pytest.raises(ComponentError, match="a line of more than 10 bytes"):
            long.until(lambda: False)


def test_arguments_that_cannot_be_meant() -> None:
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: SocketSpout("", 1), "host=''"),
        (lambda: SocketSpout("h", 0), "port=0"),
        (lambda: WebSocketSpout("http://h"), "url='http://h'"),
        (lambda: WebSocketSpout("ws://h", resume=str), "belong together"),
    ]
    for call, message in wrong:
        with pytest.raises(ComponentError, match=message):
            call()
    builder = TopologyBuilder()
    builder.set_spout("s", SocketSpout("127.0.0.1", 1), parallelism=2)
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        with pytest.raises(ComponentError, match="each task would receive everything"):
            run.step()
