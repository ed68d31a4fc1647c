"""A master before Spark is started on it: whether it answers, and how much room it gives."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from topo.config.masters import STANDALONE, addresses, is_local, local_cores
from topo.errors import EngineError, words_of

_CONNECT_SECS = 5.0
_PORT = 7077
_PLACES_A_CORE = 8


def with_room(master: str) -> str:
    """Return a local master that retries a failed task three times, as a cluster does.

    It has more task slots than cores: a spout that waits for data occupies one, and other
    topologies of the process need theirs.
    """
    return f"local[{local_cores(master) * _PLACES_A_CORE},4]" if is_local(master) else master


def check_master(master: str) -> None:
    """Raise an EngineError if none of the masters that a `spark://` address names listens.

    Spark itself tries for a minute, and then says that its context was stopped.
    """
    if not master.startswith(STANDALONE):
        return
    silent = []
    for address in addresses(master):
        why = _silence(address)
        if not why:
            return
        silent.append(f"{address}: {why}")
    raise EngineError(
        f"no answer from the master at {'; '.join(silent)}",
        code="spark-start",
        hint=f"is it up?  topo doctor --master {master}",
    )


def _silence(address: str) -> str:
    """Return why no server answers at the address; "" if one does."""
    try:
        url = urlsplit(f"//{address}")
        where = (url.hostname or "", url.port or _PORT)
        socket.create_connection(where, timeout=_CONNECT_SECS).close()
    except (OSError, ValueError) as error:
        return words_of(error)
    return ""
