"""Takes items from Redis lists that others push to.

What a task takes it moves to a list of its own, and how many it has taken commits with the batch
that emitted them. Once that is durable they are removed there, by a script that counts: an item is
emitted again only if its batch was rolled back, and every item counts once in the state of bolts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from topo.components import StatefulSpout
from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice, check_positive
from topo.connectors.formats import Decode, Format
from topo.connectors.inflight import InflightSpout
from topo.connectors.picking import Missing
from topo.connectors.redis.server import REQUIRES, Server, as_bytes, check_url
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
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


class Item(NamedTuple):
    """An item; what `translate` is given."""

    list: str
    value: Any


class RedisListSpout(InflightSpout, StatefulSpout):
    """A spout of the items of Redis lists; several tasks share them.

    A tuple is `(list, value)`; `fields` names those, or keys of a value that is read by `value`.
    `translate` is given an `Item` and returns values, `(stream, values)`, or None for nothing.
    Items are taken at the `side` "left" or "right". The list of a task is
    `LIST:topo:TOPOLOGY/COMPONENT/INDEX`: a topology of the same name gets what was left there.

    Items are tracked if there are ackers, unless `track=False`: one that fails is emitted again
    after a pause, `retry`, out of the topology's state.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (*InflightSpout.transient, "_server", "_read")

    @answering()
    def __init__(
        self,
        url: str | Secret,
        lists: str | Iterable[str],
        *,
        side: Literal["left", "right"] = "left",
        fields: str | Iterable[str] = (),
        value: str | Format | Decode = "str",
        translate: Callable[[Item], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        page: int = 1_000,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_url(_NAME, url)
        check_choice(_NAME, "side", side, ("left", "right"))
        check_positive(_NAME, page=page)
        self.url, self.lists, self.side = url, tuple(Fields(lists)), side
        if not self.lists:
            raise ComponentError(f"{_NAME}: lists={lists!r} names no list")
        self.page = page
        self.set_up_reading(
            Item,
            Item._fields,
            track=track,
            retry=retry,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.open_reading(conf)
        self._server = Server(_NAME, self.url, keeps_bytes=True)
        self._read: dict[tuple[str, int], int] = {}  # of a task's list, how many were emitted

    def close(self) -> None:
        self._server.close()

    def owner(self, key: Any, tasks: int) -> int:
        """Return the task that empties the list of a task: its own, or of one that is no more."""
        return int(key[1]) % tasks

    def next_tuple(self) -> None:
        if self.emit_again():
            return
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
        read, most = self._read.get(key, 0), self.most(self.page)
        with self._server.reaching():
            left = self._server.client.lrange(self._list_of(key), read, read + most - 1)
        if not left and index == self.context.this_task_index and name in self.lists:
            command = ["LMOVE", name, self._list_of(key), self.side.upper(), "RIGHT"]

            def fill(pipeline: Any) -> None:
                for _ in range(most):
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
        record = partial(Item, name)
        self.emit_page(Arrival(as_bytes(text), record, name) for text in left)
        return True

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
