"""A connection to a Redis server, and its errors as topo's."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from topo.config.secrets import Secret, without_password
from topo.connectors.base import load_client
from topo.errors import ComponentError, Unavailable

REQUIRES = "redis>=5.0"
TYPES = ("string", "hash", "list", "set", "sorted_set", "hyperloglog", "geo")


def check_url(connector: str, url: Any) -> None:
    """Raise ComponentError if a URL is none."""
    if not isinstance(url, Secret) and (not isinstance(url, str) or "://" not in url):
        raise ComponentError(
            f"{connector}: url={url!r}; it is redis://host:6379/0, for example",
            hint="with a password in it, give Secret.env('NAME')",
        )


def check_type(connector: str, kind: str, additional: str) -> None:
    """Raise ComponentError for a data type without the key that it needs, or an unknown one."""
    if kind not in TYPES:
        raise ComponentError(
            f"{connector}: type={kind!r}; it is one of {', '.join(map(repr, TYPES))}"
        )
    if kind in ("hash", "sorted_set", "geo") and not additional:
        raise ComponentError(f"{connector}: type={kind!r} needs name=, the key of the whole {kind}")


class Server:
    """One connection, which is made when it is first used.

    `keeps_bytes` makes texts of what is none as well, which `as_bytes` turns back.
    """

    def __init__(self, connector: str, url: str | Secret, *, keeps_bytes: bool = False) -> None:
        self._connector = connector
        self._redis = load_client("redis", connector, "redis")
        text = url.reveal() if isinstance(url, Secret) else url
        self.shown = without_password(text)
        self.client: Any = self._redis.Redis.from_url(
            text,
            decode_responses=True,
            encoding_errors="surrogateescape" if keeps_bytes else "strict",
            socket_timeout=10,
            socket_connect_timeout=10,
        )
        # An instance that is rebuilt elsewhere is let go without a word.
        weakref.finalize(self, self.client.close).atexit = False

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn errors of a lost connection, or of a server that is loading, into Unavailable."""
        errors = self._redis.exceptions
        try:
            yield
        except errors.AuthenticationError as error:
            raise ComponentError(
                f"{self._connector}: {self.shown}: {error}", hint="the password is in the URL"
            ) from error
        except (errors.ConnectionError, errors.TimeoutError) as error:
            raise Unavailable(f"{self._connector}: {self.shown}: {error}") from error
        except errors.ResponseError as error:
            if str(error).startswith(("LOADING", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN")):
                raise Unavailable(f"{self._connector}: {self.shown}: {error}") from error
            raise ComponentError(f"{self._connector}: {self.shown}: {error}") from error

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
