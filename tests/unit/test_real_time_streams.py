"""Framed streams between a slot, Spark and the coordinator."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from topo.engine.spark.realtime.stream import Listener, Stream, connect


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


def pair(loop: Loop) -> tuple[Stream, Stream]:
    one, other = socket.socketpair()
    return Stream(one, loop.selector), Stream(other, loop.selector)


def test_messages_of_all_sizes_arrive_whole_and_in_order(loop: Loop) -> None:
    sender, receiver = pair(loop)
    got: list[tuple[int, bytes]] = []
    receiver.on_event = lambda: got.extend(receiver.receive())
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
    receiver.on_event = lambda: got.extend(receiver.receive())
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
    receiver.on_event = lambda: got.extend(receiver.receive())
    loop.until(lambda: not receiver.is_open)
    assert got == [(7, b"last words")]


def test_a_listener_wants_the_token_and_keeps_what_came_with_it(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    accepted: list[int] = []
    got: list[tuple[int, bytes]] = []

    def accept(stream: Stream, key: int) -> None:
        accepted.append(key)
        stream.on_event = lambda: got.extend(stream.receive())

    Listener(path, "right", loop.selector, accept)
    stranger = connect(path, "wrong", 3, loop.selector)
    refused: list[tuple[int, bytes]] = []
    stranger.on_event = lambda: refused.extend(stranger.receive())
    loop.until(lambda: not stranger.is_open)
    friend = connect(path, "right", 4, loop.selector)
    friend.send(9, b"at once")
    friend.flush()
    loop.until(lambda: got)
    assert accepted == [4]
    assert got == [(9, b"at once")]
    friend.close()
