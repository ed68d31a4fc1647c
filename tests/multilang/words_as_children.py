"""Components of topo that the tests run as children."""

from __future__ import annotations

from typing import Any

from topo import BasicBolt, Bolt, FailTuple, Spout, StatefulBasicBolt, Tuple

FAILED_WORD = "bad"


class Counts(StatefulBasicBolt):
    outputs = ("word", "count")

    def __init__(self, by: int = 1) -> None:
        self.by = by

    def execute(self, tup: Tuple) -> None:
        print("printed", tup.word)  # must not be read as a message
        if tup.word == FAILED_WORD:
            raise FailTuple("a bad word", report=True)
        self.state[tup.word] = self.state.get(tup.word, 0) + self.by
        self.emit([tup.word, self.state[tup.word]])


class Joins(Bolt):
    outputs = ("words",)

    def __init__(self) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)

    def on_tick(self, tup: Tuple) -> None:
        self.emit(["tick"])

    def pre_commit(self, batch_id: int) -> None:
        self.emit([" ".join(tup[0] for tup in self.held)], anchors=self.held)
        for tup in self.held:
            self.ack(tup)
        self.held.clear()


class Numbers(Spout):
    outputs = ("n",)

    def __init__(self) -> None:
        self.lines = ["0", "1", "2"]

    def next_tuple(self) -> None:
        if self.lines:
            line = self.lines.pop(0)
            self.emit([line], msg_id=int(line) if line.isdigit() else None)

    def ack(self, msg_id: Any) -> None:
        self.lines.append(f"acked {msg_id}")

    def fail(self, msg_id: Any, reason: str = "") -> None:
        self.lines.append(f"failed {msg_id}")


class Breaks(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple) -> None:
        self.emit([1 / tup[0]])
