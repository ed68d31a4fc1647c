"""Sockets that servers listen on."""

from __future__ import annotations

import socket

from topo.config.masters import join_address, split_address
from topo.errors import TopoError, words_of

_WAITING = 128  # connections that are not accepted yet; 5 would have others wait seconds
OTHER_PORT = "is the port taken? port 0 takes any free one"


class BindError(TopoError):
    """Nothing can listen at an address."""

    code = "os"


def listening(bind: str, hint: str = OTHER_PORT) -> socket.socket:
    """Return a socket that listens at HOST:PORT; raise BindError if there can be none."""
    host, port = split_address(bind)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, TCP has asyncio turn Nagle's algorithm off: it costs 40 ms on each answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen(_WAITING)
    except OSError as error:
        listener.close()
        raise BindError(f"cannot listen on {bind}: {words_of(error)}", hint=hint) from None
    return listener


def address_of(listener: socket.socket, bind: str) -> str:
    """Return HOST:PORT of a socket that was bound to `bind`, with the port that it has."""
    host, _ = split_address(bind)
    return join_address(host, listener.getsockname()[1])
