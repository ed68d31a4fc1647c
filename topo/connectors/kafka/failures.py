"""The messages of a task that failed: counted, waited for, read again, or given up.

They are read by a consumer of their own, so that the main reading never goes back. What is given up
is read once more as well, to be told of with its content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topo.connectors.kafka.client import TP, Client, Message
from topo.connectors.kafka.partitions import Partition
from topo.connectors.kafka.replay import Replayer
from topo.connectors.retries import Backoff, Retries
from topo.errors import Unavailable
from topo.state import KeyValueState


class Emits(Protocol):
    """The spout: its state, and how it emits what was read again."""

    state: KeyValueState[TP, Partition]

    def room(self, most: int) -> int:
        """Return how many messages may be emitted now, of as many as `most`."""

    def emit_once_more(self, key: TP, message: Message) -> bool:
        """Emit a message; return False if nothing is to be emitted of it now."""

    def bury(self, key: TP, offset: int, message: Message | None, reason: str) -> None:
        """Emit a message that was given up; None: the log has it no longer."""


class Failures:
    """The failed messages of the partitions in a spout's state, which keeps them with their books.

    `restore` is called once the state is back.
    """

    def __init__(
        self,
        spout: Emits,
        connect: Callable[[], Client],
        backoff: Backoff,
        now: Callable[[], float],
    ) -> None:
        self._spout = spout
        self._replayer = Replayer(connect)
        self._retries: Retries[TP] = Retries(backoff, now)
        self._has_dead = False

    @property
    def _state(self) -> KeyValueState[TP, Partition]:
        return self._spout.state

    def restore(self) -> None:
        """Take over what the committed batch has saved."""
        for key, partition in self._state.raw().items():
            self._retries.restore(key, partition.again)
            self._has_dead |= bool(partition.dead)

    def __bool__(self) -> bool:
        return bool(len(self._retries)) or self._has_dead

    @property
    def asked(self) -> int:
        """The number of messages that are being read again, and will be emitted."""
        return self._replayer.wanted

    @property
    def is_waiting(self) -> bool:
        """True if messages are to be emitted again."""
        return bool(len(self._retries))

    def save(self, key: TP) -> None:
        """Note in a partition's state what of it is to be emitted again."""
        again = self._retries.saved(key)
        if again != self._state.raw()[key].again:
            self._state[key].again = again

    def forget_partition(self, key: TP) -> None:
        """Forget the messages of a partition that is read elsewhere now."""
        self._retries.retain(set(self._state.raw()) - {key})

    def acked(self, key: TP, offset: int) -> None:
        if len(self._retries):
            self._retries.forget(key, offset)

    def failed(self, key: TP, offset: int) -> bool:
        """Have a message emitted again after a pause; return False if it is given up."""
        self._retries.fail(key, offset)
        return self._retries.schedule(key, offset)

    def give_up(self, key: TP, offset: int, reason: str) -> None:
        """Have a message read once more, and told of with the reason."""
        self._state[key].dead[offset] = reason
        self._has_dead = True

    def emit(self) -> bool:
        """Emit failed messages whose pause is over; return False if there were none."""
        if self._replayer.is_idle:
            self._replayer.want(self._wanted())
        messages, gone = self._replayer.fetch()
        for key, offset in gone:
            self._bury(key, offset, None)
            self._done(key, offset)
        emitted = False
        for message in messages:
            key, offset = (message.topic(), message.partition()), message.offset()
            if offset in self._state.raw()[key].dead:
                self._bury(key, offset, message)
                self._done(key, offset)
                emitted = True
            elif self._retries.remove(key, offset):
                try:
                    emits = self._spout.emit_once_more(key, message)
                except Unavailable:  # a schema is out of reach; those behind it stay scheduled
                    self._retries.schedule(key, offset)
                    raise
                emitted |= emits
                if not emits:
                    self._done(key, offset)
        return emitted

    def _wanted(self) -> dict[TP, list[int]]:
        """Return what is to be read again, by partition, in order; no more than may be emitted."""
        wanted = self._retries.ready()
        room = self._spout.room(sum(map(len, wanted.values())))
        for key in list(wanted):
            wanted[key] = wanted[key][:room]
            room -= len(wanted[key])
            if not wanted[key]:
                del wanted[key]
        if self._has_dead:
            for key, partition in self._state.raw().items():
                if partition.dead:
                    wanted[key] = sorted({*wanted.get(key, ()), *partition.dead})
            self._has_dead = any(partition.dead for partition in self._state.raw().values())
        return wanted

    def _bury(self, key: TP, offset: int, message: Message | None) -> None:
        reason = self._state[key].dead.pop(offset, None)
        if reason is not None:
            self._spout.bury(key, offset, message, reason)

    def _done(self, key: TP, offset: int) -> None:
        self._state[key].offsets.ack(offset)
        self._retries.forget(key, offset)
