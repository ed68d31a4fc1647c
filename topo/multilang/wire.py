"""The messages of Storm's multi-language protocol, as bytes and as what they say.

A message is a JSON text on one or several lines, and then a line `end`; with `serializer="msgpack"`
it is a MessagePack map, and nothing stands between two of them, as pystorm and pyleus have it.
What comes from a child is checked here, so that the components read nothing that is no message.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from topo.distribution import load_client
from topo.errors import ComponentError, ShellError, did_you_mean, printable, shown

Message: TypeAlias = dict[str, Any]

SYSTEM, TICK, HEARTBEAT = "__system", "__tick", "__heartbeat"
DEFAULT_LEVEL = 2
"""Of a log line that names none: information."""
_END = b"\nend\n"
_MOST_BYTES = 64 << 20
"""Of one message: a child that never ends one must not fill the memory."""
_SHOWN_BYTES = 300


class Wire(Protocol):
    """One direction of reading and one of writing, for one child."""

    def encode(self, message: object) -> bytes: ...

    def decode(self, data: bytes) -> list[Any]:
        """Return the messages that are complete with this data."""
        ...

    def unread(self) -> bytes:
        """Return the beginning of the message that is not complete."""
        ...


class JsonWire:
    """JSON texts, each ended by a line `end`."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._searched = 0
        """Up to where no message ends."""
        self._encode = json.JSONEncoder(separators=(",", ":")).encode

    def encode(self, message: object) -> bytes:
        return self._encode(message).encode("ascii") + _END

    def decode(self, data: bytes) -> list[Any]:
        rest = self._rest
        # CR: of a runtime that ends lines as Windows does; within a text, JSON spells it out.
        rest += data.replace(b"\r", b"") if b"\r" in data else data
        messages, start = [], 0
        while (end := rest.find(_END, self._searched)) >= 0:
            messages.append(_parsed(bytes(rest[start:end])))
            start = self._searched = end + len(_END)
        del rest[:start]
        self._searched = max(0, len(rest) - len(_END) + 1)
        if len(rest) > _MOST_BYTES:
            raise _unreadable(rest, f"has more than {_MOST_BYTES >> 20} MB and no line 'end'")
        unread = rest[:_SHOWN_BYTES].lstrip().removeprefix(BOM_UTF8)
        line, is_whole, _ = unread.partition(b"\n")
        if is_whole and not line.startswith((b"{", b"[")):  # whose end would be waited for
            raise _unreadable(line, "is no message")
        return messages

    def unread(self) -> bytes:
        """Return the beginning of the message that is not complete."""
        return bytes(self._rest[:_SHOWN_BYTES])


class MsgpackWire:
    """MessagePack maps, one behind the other."""

    def __init__(self) -> None:
        msgpack = load_client("msgpack", 'serializer="msgpack"', "msgpack")
        self._pack = msgpack.Packer().pack
        self._unpacker = msgpack.Unpacker(max_buffer_size=_MOST_BYTES)

    def encode(self, message: object) -> bytes:
        return bytes(self._pack(message))

    def decode(self, data: bytes) -> list[Any]:
        try:
            self._unpacker.feed(data)
            return list(self._unpacker)
        except Exception as error:
            raise _unreadable(data, f"is no MessagePack: {error}") from None

    def unread(self) -> bytes:
        return b""  # it is inside the library


WIRES: dict[str, Callable[[], Wire]] = {"json": JsonWire, "msgpack": MsgpackWire}


def check_serializer(component: str, name: object) -> None:
    """Raise ComponentError for a serializer that there is not."""
    if name not in WIRES:
        raise ComponentError(
            f"{component}: serializer={name!r}; it is one of {', '.join(map(repr, WIRES))}",
            hint=did_you_mean(name, WIRES),
        )


def _parsed(piece: bytes) -> Any:
    try:
        return json.loads(piece)
    except ValueError as error:  # not UTF-8 as well
        raise _unreadable(piece, f"is no JSON: {error}") from None


def _unreadable(data: bytes | bytearray, why: str) -> ShellError:
    text = printable(data[:_SHOWN_BYTES].decode("utf-8", "backslashreplace"))
    return ShellError(
        f"what it wrote to its standard output {why}:\n{text}",
        hint="stdout belongs to the protocol; print to stderr, which is logged, or send a `log`",
        code="unreadable",
    )


@dataclass(frozen=True)
class Emit:
    """An emit of a child: of a bolt with anchors, of a spout with the message's id."""

    values: list[Any]
    stream: str
    anchors: list[str]
    task: int | None
    need_task_ids: bool
    message: Any = None


def command_of(message: Any) -> str:
    """Return the command of a message; raise ShellError for what has none."""
    command = message.get("command") if isinstance(message, dict) else None
    if not isinstance(command, str):
        raise ShellError(
            f"it sent a message without a command: {shown(message, _SHOWN_BYTES)}",
            hint='a message is {"command": "emit", ...} and the like',
            code="unreadable",
        )
    return command


def emit_of(message: Message) -> Emit:
    """Return what an emit says; raise ShellError if it cannot be read."""
    values, anchors = message.get("tuple"), message.get("anchors")
    stream, task = message.get("stream"), message.get("task")
    if isinstance(anchors, str):
        anchors = [anchors]
    is_right = isinstance(values, list) and isinstance(anchors or [], list)
    is_right = is_right and isinstance(stream or "", str) and isinstance(task or 0, int)
    if not is_right:
        raise ShellError(
            f"it sent an emit that cannot be read: {shown(message, _SHOWN_BYTES)}",
            hint="tuple and anchors are lists, stream is a text, task a number",
            code="unreadable",
        )
    return Emit(
        values=values or [],
        stream=stream or "default",
        anchors=anchors or [],
        task=task or None,
        need_task_ids=message.get("need_task_ids") is not False,
        message=message.get("id"),
    )


def log_of(message: Message) -> tuple[int, str]:
    """Return the level, from 0 (trace) to 4 (error), and the text of a log line."""
    level = message.get("level", DEFAULT_LEVEL)
    return level if isinstance(level, int) else DEFAULT_LEVEL, str(message.get("msg", ""))


def tuple_message(
    number: str, component: str, stream: str, task: int, values: Iterable[Any]
) -> Message:
    """Return the message of an input tuple."""
    return {
        "id": number,
        "comp": component,
        "stream": stream,
        "task": task,
        "tuple": list(values),
    }


def system_message(number: str, stream: str, values: Iterable[Any] = ()) -> Message:
    """Return the message of a tick or a heartbeat, which come from no task."""
    return tuple_message(number, SYSTEM, stream, -1, values)
