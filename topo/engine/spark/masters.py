"""Whether a standalone cluster's master is there, before Spark is started against it.

Spark itself tries for a minute, and then says that its context was stopped.
"""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from topo.acker.security import is_loopback
from topo.errors import EngineError

_CONNECT_SECS = 5.0
_PORT = 7077


def check_master(master: str) -> None:
    """Raise an EngineError if none of the masters that a `spark://` address names listens."""
    if not master.startswith("spark://"):
        return
    silent = []
    for address in master.removeprefix("spark://").split(","):
        why = _silence(address)
        if not why:
            return
        silent.append(f"{address}: {why}")
    raise EngineError(
        f"no answer from the master at {'; '.join(silent)}",
        code="spark-start",
        hint=f"is it up?  topo doctor --master {master}",
    )


def is_in_this_machine(master: str) -> bool:
    """Whether what runs there sees the files that are here."""
    if not master.startswith("spark://"):
        return master.startswith("local")
    addresses = master.removeprefix("spark://").split(",")
    return all(is_loopback(urlsplit(f"//{address}").hostname or "") for address in addresses)


def _silence(address: str) -> str:
    """Why nobody answers there; "" if somebody does."""
    try:
        url = urlsplit(f"//{address}")
        where = (url.hostname or "", url.port or _PORT)
        socket.create_connection(where, timeout=_CONNECT_SECS).close()
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    return ""
