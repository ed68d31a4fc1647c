"""What a connector talks to: a server or a service, its name in messages, and its errors as topo's.

Each client has errors of its own, and a task has to know of each whether waiting helps: after
Unavailable a batch is tried again, a ComponentError ends the run. So whoever knows a client says
that in one method, `in_words`, and its users make their calls below `reaching`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topo.connectors.addresses import connecting_failed
from topo.errors import ComponentError, TopoError, Unavailable

_PASSING = (408, 425, 429)


def passes(status: int) -> bool:
    """Return True if the same HTTP request may be answered otherwise later."""
    return status in _PASSING or status >= 500


class Remote:
    """A server or a service, as one connector reaches it."""

    def __init__(self, connector: str, name: str) -> None:
        """Name the place: by its address without a password, or by what it is called."""
        self.connector, self.shown = connector, name

    @property
    def place(self) -> str:
        """As messages to users begin."""
        return f"{self.connector}: {self.shown}"

    def in_words(self, error: BaseException) -> Exception | None:
        """Return what to raise for an error of the client; None if it is none of the client's."""
        raise NotImplementedError

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turn errors of the client into topo's."""
        try:
            yield
        except TopoError:
            raise
        except Exception as error:
            reason = self.in_words(error)
            if reason is None:
                raise
            raise reason from error

    def unavailable(self, what: object, retry_after: float | None = None) -> Unavailable:
        """Return the error for what may pass."""
        return Unavailable(f"{self.place}: {what}", retry_after)

    def refused(self, what: object, hint: str = "") -> ComponentError:
        """Return the error for what no waiting mends."""
        return ComponentError(f"{self.place}: {what}", hint=hint)

    def connecting_failed(self, error: BaseException) -> Exception:
        """Return the error for a connection that was not made, or was lost."""
        return connecting_failed(self.connector, self.shown, error)

    def close_at_last(self, close: Callable[[], object]) -> None:
        """Have a client closed with this, without a word: an instance may be rebuilt elsewhere."""
        weakref.finalize(self, close).atexit = False
