"""Framed streams between a slot, Spark and the coordinator."""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificates, tls
from topo.engine.spark.realtime.encryption import (
    client_context,
    server_context,
    tls_in,
    token_with,
)
from topo.engine.spark.realtime.stream import Listener, MessageStream, connect
from topo.errors import EngineError
from topo.tracking.security import Tls


class Loop:
    """Everything in one thread: whatever is ready, until a condition holds."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()

    def until(self, condition: Callable[[], Any]) -> None:
        for _ in range(10_000):
            if condition():
                return
            for key, mask in self.selector.select(1.0):
                key.data.event(mask)
        raise AssertionError("it does not come")


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    for key in list(loop.selector.get_map().values()):
        key.data.close()
    loop.selector.close()


def pair(loop: Loop) -> tuple[MessageStream, MessageStream]:
    one, other = socket.socketpair()
    return MessageStream(one, loop.selector), MessageStream(other, loop.selector)


def test_messages_of_all_sizes_arrive_whole_and_in_order(loop: Loop) -> None:
    sender, receiver = pair(loop)
    got: list[tuple[int, bytes]] = []
    receiver.listen(lambda: got.extend(receiver.receive()))
    sizes = [0, 1, 70_000, 5_000_000, 3, 300_000]
    for number, size in enumerate(sizes):
        sender.send(number, b"head", bytes([number]) * size)
    sender.flush()
    assert sender.waiting > 0  # it did not wait for the other end
    loop.until(lambda: len(got) == len(sizes))
    wanted = [(number, b"head" + bytes([number]) * size) for number, size in enumerate(sizes)]
    assert got == wanted
    assert sender.waiting == 0


def test_who_does_not_read_holds_up_who_writes(loop: Loop) -> None:
    sender, receiver = pair(loop)
    got: list[tuple[int, bytes]] = []
    receiver.listen(lambda: got.extend(receiver.receive()))
    receiver.read(False)
    sender.send(1, bytes(20_000_000))
    sender.flush()
    for _ in range(100):
        for key, mask in loop.selector.select(0):
            key.data.event(mask)
    assert not got
    assert sender.waiting > 0
    receiver.read(True)
    loop.until(lambda: got)


def test_an_end_closes_and_what_came_before_it_is_there(loop: Loop) -> None:
    sender, receiver = pair(loop)
    sender.send(7, b"last words")
    sender.flush()
    sender.close()
    got: list[tuple[int, bytes]] = []
    receiver.listen(lambda: got.extend(receiver.receive()))
    loop.until(lambda: not receiver.is_open)
    assert got == [(7, b"last words")]


def test_a_listener_wants_the_token_and_keeps_what_came_with_it(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    accepted: list[int] = []
    got: list[tuple[int, bytes]] = []

    def accept(stream: MessageStream, key: int) -> None:
        accepted.append(key)
        stream.listen(lambda: got.extend(stream.receive()))

    Listener(path, "right", loop.selector, accept)
    stranger = connect(path, "wrong", 3, loop.selector)
    refused: list[tuple[int, bytes]] = []
    stranger.listen(lambda: refused.extend(stranger.receive()))
    loop.until(lambda: not stranger.is_open)
    friend = connect(path, "right", 4, loop.selector)
    friend.send(9, b"at once")
    friend.flush()
    loop.until(lambda: got)
    assert accepted == [4]
    assert got == [(9, b"at once")]
    friend.close()


def test_a_message_that_is_too_long_for_its_head_is_told(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.engine.spark.process.framing.MOST_BYTES", 10)
    sender, _ = pair(loop)
    sender.send(1, bytes(10))
    with pytest.raises(EngineError, match="11 bytes at once, and a process of topo sends 10"):
        sender.send(1, bytes(5), bytes(6))


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def connected(loop: Loop, listener: Listener, tls: Tls) -> MessageStream:
    """Connect to the listener, which shakes hands in this thread, from another one."""
    address = f"127.0.0.1:{listener.port}"
    with ThreadPoolExecutor(1) as pool:
        context = client_context(tls)
        stream = pool.submit(connect, address, "right", 3, loop.selector, context)
        loop.until(stream.done)
        return stream.result()


def send_all(stream: MessageStream, messages: list[tuple[int, bytes]]) -> None:
    for key, data in messages:
        stream.send(key, data)
        stream.flush()


@pytest.mark.parametrize(("server_ca", "client"), [(None, None), ("ca", "client")])
def test_over_tls_a_stream_is_the_same(
    loop: Loop, certificates: Path, server_ca: str | None, client: str | None
) -> None:
    got: list[tuple[int, bytes]] = []
    back: list[tuple[int, bytes]] = []
    accepted: list[MessageStream] = []

    def accept(stream: MessageStream, key: int) -> None:
        accepted.append(stream)
        stream.listen(lambda: got.extend(stream.receive()))

    context = server_context(tls(certificates, "server", server_ca))
    listener = Listener("127.0.0.1:0", "right", loop.selector, accept, context)
    stream = connected(loop, listener, tls(certificates, client, "ca"))
    stream.listen(lambda: back.extend(stream.receive()))
    messages = [(number, bytes([number]) * size) for number, size in enumerate([0, 5_000_000, 3])]
    send_all(stream, messages)
    loop.until(lambda: len(got) == len(messages))
    send_all(accepted[0], messages)
    loop.until(lambda: len(back) == len(messages))
    assert got == back == messages
    stream.close()
    loop.until(lambda: not accepted[0].is_open)


def test_a_driver_of_another_authority_is_not_talked_to(loop: Loop, certificates: Path) -> None:
    context = server_context(tls(certificates, "server", None))
    listener = Listener("127.0.0.1:0", "right", loop.selector, nobody_comes, context)
    with pytest.raises(ssl.SSLCertVerificationError):
        connected(loop, listener, tls(certificates, None, "other"))


@pytest.mark.parametrize("client", [None, "stranger"])
def test_a_slot_without_the_right_certificate_is_hung_up_on(
    loop: Loop, certificates: Path, client: str | None
) -> None:
    context = server_context(tls(certificates, "server", "ca"))
    listener = Listener("127.0.0.1:0", "right", loop.selector, nobody_comes, context)
    stream = connected(loop, listener, tls(certificates, client, "ca"))
    refused: list[tuple[int, bytes]] = []
    stream.listen(lambda: refused.extend(stream.receive()))
    loop.until(lambda: not stream.is_open)


def nobody_comes(stream: MessageStream, key: int) -> None:
    raise AssertionError("let in")


def test_what_a_slot_needs_for_tls_travels_with_its_token(certificates: Path) -> None:
    for given in (tls(certificates, "client", "ca"), tls(certificates, None, None)):
        assert tls_in(token_with("abc", given)) == given
    assert token_with("abc", None) == "abc"
