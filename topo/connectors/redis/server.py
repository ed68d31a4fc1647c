"""A connection to a Redis server, and its errors as topo's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topo.config.secrets import Secret, revealed, without_password
from topo.connectors.addresses import check_form_of_url
from topo.connectors.base import load_client
from topo.connectors.remote import Remote
from topo.errors import ComponentError

REQUIRES = "redis>=5.0"
TYPES = ("string", "hash", "list", "set", "sorted_set", "hyperloglog", "geo")
_URL = re.compile(r"(redis|rediss|unix)://")
_PASSING = ("LOADING", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN")


def check_url(connector: str, url: Any) -> None:
    """Raise ComponentError if a URL is none."""
    check_form_of_url(connector, url, "redis://host:6379/0", _URL)


def check_type(connector: str, kind: str, additional: str) -> None:
    """Raise ComponentError for a data type without the key that it needs, or an unknown one."""
    if kind not in TYPES:
        raise ComponentError(
            f"{connector}: type={kind!r}; it is one of {', '.join(map(repr, TYPES))}"
        )
    if kind in ("hash", "sorted_set", "geo") and not additional:
        raise ComponentError(f"{connector}: type={kind!r} needs name=, the key of the whole {kind}")


class Server(Remote):
    """One connection, which is made when it is first used.

    `keeps_bytes` makes texts of what is none as well, which `as_bytes` turns back.
    """

    def __init__(self, connector: str, url: str | Secret, *, keeps_bytes: bool = False) -> None:
        text: str = revealed(url)
        super().__init__(connector, without_password(text))
        self._redis = load_client("redis", connector, "redis")
        self.client: Any = self._redis.Redis.from_url(
            text,
            decode_responses=True,
            encoding_errors="surrogateescape" if keeps_bytes else "strict",
            socket_timeout=10,
            socket_connect_timeout=10,
        )
        self.close_at_last(self.client.close)

    def in_words(self, error: BaseException) -> Exception | None:
        errors = self._redis.exceptions
        if isinstance(error, errors.AuthenticationError):
            return self.refused(error, "the password is in the URL")
        if isinstance(error, (errors.ConnectionError, errors.TimeoutError)):
            return self.unavailable(error)
        if isinstance(error, errors.ResponseError):
            is_passing = str(error).startswith(_PASSING)
            return self.unavailable(error) if is_passing else self.refused(error)
        return None

    def pipelined(self, fill: Callable[[Any], None]) -> list[Any]:
        """Send commands at once; return their answers."""
        with self.reaching():
            pipeline = self.client.pipeline(transaction=False)
            fill(pipeline)
            return list(pipeline.execute())

    def close(self) -> None:
        self.client.close()


def by_stream(found: Any) -> Iterable[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Return entries by stream: a dict of lists of lists in RESP3, a list of pairs in RESP2."""
    if not isinstance(found, Mapping):
        return [(str(stream), list(entries)) for stream, entries in found]
    return [
        (str(stream), [one for entries in lists for one in entries])
        for stream, lists in found.items()
    ]


def as_bytes(text: str) -> bytes:
    """Return what Redis has sent, whose texts need be none."""
    return text.encode("utf-8", "surrogateescape")
