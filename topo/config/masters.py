"""Spark masters' addresses: local or not, their cores, their hosts."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from topo.errors import ConfigError
from topo.systems import usable_cores

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
    return usable_cores() if cores == "*" else max(1, int(cores))


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


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`, `[::1]:port` or a bare `host` (any free port) into host and port."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]") or (":" in host and not host.startswith("[")):
        host, port = address, "0"
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(
            f"{address!r} is no address to bind to", hint="write host:port, such as 127.0.0.1:7070"
        )
    return host, int(port)
