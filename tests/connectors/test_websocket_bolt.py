"""WebSocketBolt with servers of the test's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

from tests.connectors.moving import RollsBack, committed_numbers
from tests.servers.processes import free_port
from topo import ComponentError, Unavailable
from topo.connectors import websocket
from topo.connectors.websocket import WebSocketBolt
from topo.testing import make_tuple, run_bolt


class Hearing:
    """A websocket server that notes and answers what it hears; it may close connections."""

    def __init__(
        self, port: int = 0, each: int = 1_000_000, answers: bool = True, **more: Any
    ) -> None:
        self.messages: list[Any] = []

        def handle(connection: Any) -> None:
            try:
                for number, message in enumerate(connection, 1):
                    self.messages.append(message)
                    if answers:
                        connection.send("ok")
                    if number >= each:
                        return
            except ConnectionClosed:
                pass

        self._server = serve(handle, "127.0.0.1", port, **more)
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()


@pytest.fixture
def hearing() -> Iterator[Any]:
    servers: list[Hearing] = []

    def make(**more: Any) -> Hearing:
        servers.append(Hearing(**more))
        return servers[-1]

    yield make
    for each in servers:
        each.close()


def batches(*sizes: int) -> list[Any]:
    numbers = iter(range(sum(sizes)))
    return [[make_tuple([next(numbers)], fields=["n"]) for _ in range(size)] for size in sizes]


@pytest.mark.parametrize("after_commit", [False, True])
def test_messages_are_there_when_their_batch_has_committed(
    hearing: Any, after_commit: bool
) -> None:
    server = hearing()
    run_bolt(WebSocketBolt(server.url, after_commit=after_commit), batches=batches(20, 30))
    assert [json.loads(text)["n"] for text in server.messages] == list(range(50))


def test_bytes_are_binary_messages(hearing: Any) -> None:
    server = hearing()
    bolt = WebSocketBolt(server.url, value="bytes", map=lambda tup: b"\xff" * tup["n"])
    run_bolt(bolt, batches=batches(3))
    assert server.messages == [b"", b"\xff", b"\xff\xff"]


def test_a_connection_that_is_cut_off_loses_nothing(hearing: Any) -> None:
    server = hearing(each=15)
    run_bolt(WebSocketBolt(server.url), batches=batches(10, 10, 10, 10))
    numbers = [json.loads(text)["n"] for text in server.messages]
    assert set(numbers) == set(range(40))
    assert len(numbers) > 40  # the batch in which it was cut off is there twice, in part


class SometimesSends(RollsBack, WebSocketBolt):
    pass


def test_after_the_commit_only_what_has_committed_is_sent(hearing: Any) -> None:
    server = hearing()
    committed = committed_numbers(SometimesSends(server.url, after_commit=True), seed=3)
    assert {json.loads(text)["number"] for text in server.messages} == set(committed)


def test_before_the_commit_what_is_rolled_back_is_sent_as_well(hearing: Any) -> None:
    """The control of the test above."""
    server = hearing()
    committed = committed_numbers(SometimesSends(server.url), seed=3)
    assert {json.loads(text)["number"] for text in server.messages} > set(committed)


def test_a_server_that_answers_nothing_is_told_of(
    hearing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_ANSWER_SECS", 0.05)
    server = hearing(answers=False)
    with pytest.raises(Unavailable, match=r"1 of 1 messages are not answered.*guarantee='none'"):
        run_bolt(WebSocketBolt(server.url, retry_secs=0.01), batches=batches(1))


def test_nothing_is_waited_for_where_nothing_is_promised(hearing: Any) -> None:
    server = hearing()  # what it answers is dropped
    run_bolt(WebSocketBolt(server.url, guarantee="none"), batches=batches(*[10] * 10))
    pause = threading.Event()
    while len(server.messages) < 100:
        pause.wait(0.01)


def test_a_server_that_is_away_is_told_of() -> None:
    url = f"ws://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=r"WebSocketBolt: ws://.*refused"):
        run_bolt(WebSocketBolt(url, retry_secs=0.01), batches=batches(1))
    run_bolt(WebSocketBolt(url, guarantee="none"), batches=batches(1))  # lost, as it says


def test_a_message_that_the_server_does_not_take_is_an_error(hearing: Any) -> None:
    server = hearing(max_size=100)
    bolt = WebSocketBolt(server.url, map=lambda tup: "x" * 1_000)
    with pytest.raises(ComponentError, match="1009"):
        run_bolt(bolt, batches=batches(1))


@pytest.mark.parametrize("guarantee", ["exactly_once", "by_batch"])
def test_what_is_not_to_be_had_says_why(guarantee: str) -> None:
    with pytest.raises(ComponentError, match=f"guarantee='{guarantee}' is not to be had"):
        WebSocketBolt("ws://h", guarantee=guarantee)
