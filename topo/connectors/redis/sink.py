"""Writes tuples to Redis.

`exactly_once` keeps a batch's commands in state and runs them, once the batch has committed, in a
script that also notes the batch's number: the script does nothing if the number is there already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import (
    Guarantee,
    OnBad,
    check_choice,
    check_positive,
)
from topo.connectors.publication import PublishingSink, Rejected
from topo.connectors.redis.server import REQUIRES, Server, check_type, check_url
from topo.tuples import Tuple

_NAME = "RedisStoreBolt"
_SCRIPT = """
local marker = redis.call('GET', KEYS[1])
if marker and tonumber(marker) >= tonumber(ARGV[1]) then return 0 end
for number = 2, #ARGV do redis.call(unpack(cjson.decode(ARGV[number]))) end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""

Chosen = str | Callable[[Tuple], Any]


class RedisStoreBolt(PublishingSink):
    """A sink of Redis data, of Storm's seven types.

    `key` and `value` are a field's name or a function of the tuple. Of `hash`, `sorted_set` and
    `geo`, `name` is the key of the whole, and `key` its field or member; of a sorted set the value
    is the score, of `geo` a pair of longitude and latitude. `ttl_secs` lets the data expire.
    """

    requires: Iterable[str] = (REQUIRES,)
    transient = ("_server", "_commands")

    @answering()
    def __init__(
        self,
        url: str | Secret,
        *,
        key: Chosen,
        value: Chosen,
        type: str = "string",
        name: str = "",
        ttl_secs: int | None = None,
        guarantee: Guarantee = "at_least_once",
        on_bad: OnBad = "stop",
    ) -> None:
        check_url(_NAME, url)
        check_type(_NAME, type, name)
        check_choice(_NAME, "guarantee", guarantee, ("none", "at_least_once", "exactly_once"))
        check_positive(_NAME, ttl_secs=ttl_secs)
        self.url, self.key, self.value, self.type, self.name = url, key, value, type, name
        self.ttl_secs, self.guarantee = ttl_secs, guarantee
        self.set_on_bad(on_bad)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._server = Server(_NAME, self.url)
        self._commands: list[list[Any]] = []

    def cleanup(self) -> None:
        self._server.close()

    def execute(self, tup: Tuple) -> None:
        try:
            self._commands += self._commands_of(_text(_chosen(self.key, tup)), tup)
        except Exception as error:
            self.reject(list(tup.values), error)

    def _commands_of(self, key: str, tup: Tuple) -> list[list[Any]]:
        value = _chosen(self.value, tup)
        if self.type == "geo":
            longitude, latitude = map(float, value)
            command: list[Any] = ["GEOADD", self.name, str(longitude), str(latitude), key]
        elif self.type == "sorted_set":
            command = ["ZADD", self.name, repr(float(value)), key]
        elif self.type == "hash":
            command = ["HSET", self.name, key, _text(value)]
        else:
            names = {"string": "SET", "list": "RPUSH", "set": "SADD", "hyperloglog": "PFADD"}
            command = [names[self.type], key, _text(value)]
        expire = [["EXPIRE", command[1], str(self.ttl_secs)]] if self.ttl_secs else []
        return [command, *expire]

    def pre_commit(self, batch_id: int) -> None:
        commands, self._commands = self._commands, []
        if self.guarantee == "exactly_once":
            self.keep(batch_id, commands)
        elif commands:
            self._server.pipelined(lambda pipeline: _fill(pipeline, commands))
            self.context.counter("commands", len(commands))

    def publish(self, number: int, batch: Any) -> Rejected:
        """Run the commands of a batch, unless its number is in Redis."""
        with self._server.reaching():
            packed = [json.dumps(command) for command in batch]
            ran = self._server.client.eval(_SCRIPT, 1, self._marker, str(number), *packed)
        self.context.counter("commands", len(batch) if ran else 0)
        return []

    @property
    def _marker(self) -> str:
        context = self.context
        name = f"topo:{context.checkpoint_id}:{context.this_component_id}"
        return f"{name}:{context.this_task_index}"


def _fill(pipeline: Any, commands: list[list[Any]]) -> None:
    for command in commands:
        pipeline.execute_command(*command)


def _chosen(given: Chosen, tup: Tuple) -> Any:
    return tup[given] if isinstance(given, str) else given(tup)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"Redis holds texts and numbers; got a {type_name(value)}")
    return repr(value)


def type_name(value: Any) -> str:
    """Return the name of a value's class."""
    return type(value).__name__
