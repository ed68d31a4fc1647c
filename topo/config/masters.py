"""Spark masters' addresses: local or not, their cores, their hosts."""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import urlsplit

from topo.errors import ConfigError

STANDALONE = "spark://"


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


def is_in_this_machine(master: str) -> bool:
    """True iff the workers of this master share this machine's files."""
    if not master.startswith(STANDALONE):
        return is_local(master)
    hosts = [urlsplit(f"//{address}").hostname or "" for address in addresses(master)]
    return all(map(is_loopback, hosts))


def addresses(master: str) -> list[str]:
    """Return the `host:port` of each master that a `spark://` address names."""
    return master.removeprefix(STANDALONE).split(",")


def is_loopback(host: str) -> bool:
    """True iff only this machine reaches what is bound to this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
