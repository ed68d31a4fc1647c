"""TLS between the driver and the slots of a cluster, with the certificates of `topology.acker.tls`.

A slot's process is started by a task of Spark's, which hands on the run's token and nothing else of
the driver's. So what a slot needs to check the driver, and to show to it, is a part of that token,
which Spark keeps out of its pages and logs. A slot imports this module only if it is needed: `ssl`
takes 20 ms, a tenth of its start.
"""

from __future__ import annotations

import ssl
import tempfile
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from topo.tracking.security import Tls

_BETWEEN = "."  # of parts in base64, which has none


class _Socket(ssl.SSLSocket):
    """A socket over TLS that has to wait in the words of one without."""

    def recv(self, *args: Any) -> bytes:
        try:
            return super().recv(*args)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def send(self, *args: Any) -> int:
        try:
            return super().send(*args)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error


def token_with(token: str, tls: Tls | None) -> str:
    """Return a token that also has what a slot is to use; `token` has no dot."""
    if tls is None:
        return token
    parts = (tls.certificate, tls.key, tls.ca)
    return _BETWEEN.join((token, *(urlsafe_b64encode(part or b"").decode() for part in parts)))


def tls_in(token: str) -> Tls:
    """Return what a token was made with; it has dots."""
    _, *parts = token.split(_BETWEEN)
    certificate, key, ca = (urlsafe_b64decode(part) or None for part in parts)
    return Tls(certificate, key, ca)


def server_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of the driver; with an authority it asks slots for certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _prepare(context, tls)
    if tls.ca is not None:
        context.load_verify_locations(cadata=tls.ca.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of a slot; without an authority it trusts those of its machine."""
    context = ssl.create_default_context(cadata=tls.ca.decode() if tls.ca else None)
    _prepare(context, tls)
    return context


def _prepare(context: ssl.SSLContext, tls: Tls) -> None:
    context.sslsocket_class = _Socket
    if tls.certificate is not None and tls.key is not None:
        with tempfile.NamedTemporaryFile() as file:  # only this user can read it
            file.write(tls.certificate + b"\n" + tls.key)
            file.flush()
            context.load_cert_chain(file.name)
