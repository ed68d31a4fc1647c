"""The offset at which the reading of a partition begins.

A saved position counts before all. On a checkpoint's first start the group's offset may count, if
it was committed by this topology or the rule says so; then the rule: the log's beginning, its end,
or a time. A partition that is found later is read from its beginning: what was written before it
was noticed belongs to the stream as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from topo.connectors.kafka.client import TP, Client
from topo.errors import ComponentError

_NAMES = {
    "earliest": ("earliest", False),
    "latest": ("latest", False),
    "committed-earliest": ("earliest", True),
    "committed-latest": ("latest", True),
    "committed": ("none", True),
    # Storm's.
    "EARLIEST": ("earliest", False),
    "LATEST": ("latest", False),
    "UNCOMMITTED_EARLIEST": ("earliest", True),
    "UNCOMMITTED_LATEST": ("latest", True),
}


@dataclass(frozen=True)
class Start:
    """The rule: `reset` is where reading begins if no committed offset counts.

    `any_commit` is True if a group's offset counts whoever committed it, and not only if it was
    this topology.
    """

    reset: str
    any_commit: bool = False
    millis: int | None = None
    offsets: Mapping[TP, int] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Any, topic: str | None, what: str = "start") -> Start:
        """Read what the user gave: a name, a datetime, or offsets by partition."""
        if isinstance(given, datetime):
            return cls("timestamp", millis=int(given.timestamp() * 1000))
        if isinstance(given, tuple) and len(given) == 2:
            name, time = given
            if name == "committed" and isinstance(time, datetime):
                return cls("timestamp", True, millis=int(time.timestamp() * 1000))
        if isinstance(given, Mapping):
            offsets = {}
            for key, offset in given.items():
                if isinstance(key, int) and topic is not None:
                    key = (topic, key)
                if not isinstance(key, tuple):
                    raise ComponentError(
                        f"KafkaSpout: {what}={given!r}",
                        hint="offsets are {(topic, partition): offset}",
                    )
                offsets[key] = int(offset)
            return cls("earliest", True, offsets=offsets)
        if not isinstance(given, str) or given not in _NAMES:
            raise ComponentError(
                f"KafkaSpout: start={given!r}; it is one of {', '.join(map(repr, _NAMES))}, "
                "a datetime, ('committed', datetime), or {(topic, partition): offset}"
            )
        return cls(*_NAMES[given])

    def first_offsets(
        self, client: Client, partitions: Collection[TP], owner: str
    ) -> dict[TP, int]:
        """Return where each partition begins on the checkpoint's first start."""
        found = {key: self.offsets[key] for key in partitions if key in self.offsets}
        rest = [key for key in partitions if key not in found]
        for key, (offset, metadata) in client.committed(rest).items():
            if self.any_commit or metadata == owner:
                found[key] = offset
        rest = [key for key in rest if key not in found]
        if self.millis is not None:
            return found | client.at_time(rest, self.millis)
        for key in rest:
            if self.reset == "none":
                raise ComponentError(
                    f"KafkaSpout: the group has committed no offset of {key[0]}-{key[1]}",
                    hint="start='committed-earliest' begins at the beginning where there is none",
                )
            first, end = client.ends(key)
            found[key] = first if self.reset == "earliest" else end
        return found


def check_until(until: Any, topic: str | None) -> None:
    """Raise a ComponentError if this is no end of a reading."""
    if isinstance(until, Mapping):
        Start.of(until, topic, "until")
    elif not (until is None or until == "latest" or isinstance(until, datetime)):
        raise ComponentError(
            f"KafkaSpout: until={until!r}",
            hint="'latest', a datetime, or {(topic, partition): offset}",
        )


def end_offsets(
    until: Any, client: Client, partitions: Collection[TP], topic: str | None
) -> dict[TP, int]:
    """Return where a bounded reading ends: now, at a time, or at given offsets."""
    if until == "latest":
        return {key: client.ends(key)[1] for key in partitions}
    if isinstance(until, datetime):
        return client.at_time(partitions, int(until.timestamp() * 1000))
    given = Start.of(until, topic).offsets
    return {key: given[key] if key in given else client.ends(key)[1] for key in partitions}
