"""Spark masters' addresses: local or not, their cores, and a check that a master listens."""

from __future__ import annotations

import os
import re
import socket
from urllib.parse import urlsplit

from topo.errors import ConfigError, EngineError
from topo.tracking.security import is_loopback

_CONNECT_SECS = 5.0
_STANDALONE = "spark://"
_PORT = 7077
_PLACES_A_CORE = 8


def is_local(master: str) -> bool:
    return master.startswith("local")


def local_cores(master: str) -> int:
    """Return the number of cores of a local master."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if match is None:
        raise ConfigError(
            f"no Spark master {master!r}", hint="local[*], local[4], spark://HOST:7077"
        )
    cores = match.group(1) or "1"
    return len(os.sched_getaffinity(0)) if cores == "*" else max(1, int(cores))


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
    if not master.startswith(_STANDALONE):
        return
    silent = []
    for address in _addresses(master):
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
    """True iff the workers of this master share this machine's files."""
    if not master.startswith(_STANDALONE):
        return is_local(master)
    hosts = [urlsplit(f"//{address}").hostname or "" for address in _addresses(master)]
    return all(map(is_loopback, hosts))


def _addresses(master: str) -> list[str]:
    return master.removeprefix(_STANDALONE).split(",")


def _silence(address: str) -> str:
    """Return why no server answers at the address; "" if one does."""
    try:
        url = urlsplit(f"//{address}")
        where = (url.hostname or "", url.port or _PORT)
        socket.create_connection(where, timeout=_CONNECT_SECS).close()
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    return ""
