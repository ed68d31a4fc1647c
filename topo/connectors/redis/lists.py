"""Takes items from Redis lists that others push to.

What a task takes it moves to a list of its own, and how many it has taken commits with the batch
that emitted them. Once that is durable they are removed there, by a script that counts: an item is
emitted again only if its batch was rolled back, and every item counts once in the state of bolts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.base import BAD_FIELDS, OnBad, check_choice, check_positive
from topo.connectors.redis.server import REQUIRES, Server, bad_record, check_url
from topo.errors import ComponentError
from topo.tuples import Fields

_NAME = "RedisListSpout"
# Removes what was taken and is durable. Without a count there, Redis has lost what it had.
_FORGET = """
local removed = redis.call('GET', KEYS[2])
if removed and tonumber(removed) < tonumber(ARGV[1]) then
    redis.call('LTRIM', KEYS[1], tonumber(ARGV[1]) - tonumber(removed), -1)
end
redis.call('SET', KEYS[2], ARGV[1])
return removed
"""


class RedisListSpout(StatefulSpout):
    """A spout of the items of Redis lists; several tasks share them.

    A tuple is `(list, value)`; `translate` is given both and returns values, or None for nothing.
    Items are taken at the `side` "left" or "right". The list of a task is
    `LIST:topo:TOPOLOGY/COMPONENT/INDEX`: a topology of the same name gets what was left there.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = ("_server", "_read")

    def __init__(
        self,
        url: str | Secret,
        lists: str | Iterable[str],
        *,
        side: Literal["left", "right"] = "left",
        fields: str | Iterable[str] = (),
        translate: Callable[[str, str], Any] | None = None,
        most: int = 1_000,
        on_bad: OnBad = "stop",
    ) -> None:
        check_url(_NAME, url)
        check_choice(_NAME, "side", side, ("left", "right"))
        check_choice(_NAME, "on_bad", on_bad, ("stop", "stream", "skip"))
        check_positive(_NAME, most=most)
        self.url, self.lists, self.side = url, tuple(Fields(lists)), side
        if not self.lists:
            raise ComponentError(f"{_NAME}: lists={lists!r} names no list")
        names = tuple(Fields(fields)) or ("list", "value")
        if (translate is None) != (not fields):
            raise ComponentError(f"{_NAME}: fields= names what translate= returns; give both")
        self.translate, self.most, self.on_bad = translate, most, on_bad
        self.outputs: Any = {"default": names, "bad": BAD_FIELDS} if on_bad == "stream" else names

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self._server = Server(_NAME, self.url)
        self._read: dict[tuple[str, int], int] = {}  # of a task's list, how many were emitted

    def close(self) -> None:
        self._server.close()

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task that empties the list of a task: its own, or of one that is no more."""
        return int(key[1]) % tasks

    def next_tuple(self) -> None:
        for name in self.lists:
            key = (name, self.context.this_task_index)
            if key not in self.state:
                with self._server.reaching():
                    self.state[key] = int(self._server.client.get(self._count_of(key)) or 0)
                self._forget(key)
        for key in list(self.state):
            if self._take(key):
                return

    def _take(self, key: tuple[str, int]) -> bool:
        """Emit items of a task's list, and of the others' list if that has none; True: some."""
        name, index = key
        read = self._read.get(key, 0)
        with self._server.reaching():
            left = self._server.client.lrange(self._list_of(key), read, read + self.most - 1)
        if not left and index == self.context.this_task_index and name in self.lists:
            command = ["LMOVE", name, self._list_of(key), self.side.upper(), "RIGHT"]

            def fill(pipeline: Any) -> None:
                for _ in range(self.most):
                    pipeline.execute_command(*command)

            with self._server.reaching():
                waiting = self._server.client.llen(name)
            self.context.gauge("length", waiting, list=name)
            if waiting:
                moved = self._server.pipelined(fill)
                left = [value for value in moved if value is not None]
        if not left:
            return False
        self._read[key] = read + len(left)
        self.state[key] = self.state.raw()[key] + len(left)
        self.context.counter("items", len(left))
        if not self.emit_many([values for value in left for values in self._rows(name, value)]):
            self.context.end_batch()
        return True

    def _rows(self, name: str, value: str) -> list[Any]:
        if self.translate is None:
            return [[name, value]]
        try:
            values = self.translate(name, value)
        except Exception as error:
            bad_record(self, _NAME, value, error, name)
            return []
        return [] if values is None else [values]

    def committed(self, batch_id: int) -> None:
        """Remove what was emitted."""
        for key in self.state:
            self._forget(key)

    def _forget(self, key: tuple[str, int]) -> None:
        taken = self.state.raw()[key]
        with self._server.reaching():
            removed = self._server.client.eval(
                _FORGET, 2, self._list_of(key), self._count_of(key), str(taken)
            )
        if key in self._read and removed is not None:
            self._read[key] = max(0, self._read[key] - (taken - int(removed)))

    def _list_of(self, key: tuple[str, int]) -> str:
        name, index = key
        context = self.context
        return f"{name}:topo:{context.topology_name}/{context.this_component_id}/{index}"

    def _count_of(self, key: tuple[str, int]) -> str:
        return f"{self._list_of(key)}:removed"
