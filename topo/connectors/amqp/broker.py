"""The access to an AMQP broker with pika, and its errors in words."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from topo.config.secrets import Secret
from topo.connectors.addresses import parsed, tls_context
from topo.connectors.base import load_client
from topo.connectors.remote import Remote

REQUIRES = "pika>=1.3"
SCHEMES = {"amqp": 5672, "amqps": 5671}
_CONNECT_SECS = 10.0

_NOT_FOUND, _REFUSED, _NOT_ALLOWED, _PRECONDITION = 404, 403, 530, 406


@dataclass(frozen=True)
class Access:
    """The address of a broker, and what it asks for."""

    connector: str
    url: str | Secret
    tls: Mapping[str, Any] | None
    heartbeat_secs: int
    name: str
    """Shown in the broker's list of connections."""


class Broker(Remote):
    """A broker as pika is told of it."""

    def __init__(self, access: Access) -> None:
        address = parsed(access.connector, access.url, SCHEMES)
        super().__init__(access.connector, address.shown)
        self.pika = pika = load_client("pika", access.connector, "amqp")
        logger = logging.getLogger("pika")
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)  # what it logs as errors is raised as well
        options = None
        if address.scheme == "amqps":
            options = pika.SSLOptions(tls_context(access.connector, access.tls), address.host)
        self.parameters = pika.ConnectionParameters(
            address.host,
            address.port,
            unquote(address.path.removeprefix("/").partition("?")[0]) or "/",
            pika.PlainCredentials(address.user or "guest", address.password or "guest"),
            heartbeat=access.heartbeat_secs,
            ssl_options=options,
            socket_timeout=_CONNECT_SECS,
            stack_timeout=_CONNECT_SECS,
            blocked_connection_timeout=None,
            connection_attempts=1,
            client_properties={"connection_name": access.name},
        )

    def in_words(self, error: BaseException) -> Exception:
        exceptions = self.pika.exceptions
        workflow = self.pika.adapters.utils.connection_workflow
        for found in _inner(error):
            code = getattr(found, "reply_code", None)
            said = str(getattr(found, "reply_text", "") or found)
            if code == _REFUSED or isinstance(
                found, exceptions.ProbableAuthenticationError | exceptions.AuthenticationError
            ):
                return self.refused(
                    f"the broker refuses access: {said}",
                    "user and password are in the URL: Secret.env('NAME') hides it; the user "
                    "needs the permissions of the virtual host",
                )
            if code == _NOT_ALLOWED or isinstance(found, exceptions.ProbableAccessDeniedError):
                return self.refused(
                    f"the virtual host is refused: {said}",
                    "it is the URL's path: amqp://host/name",
                )
            if code == _NOT_FOUND:
                return self.refused(said, "declare={} declares a durable queue")
            if code == _PRECONDITION and "inequivalent" in said:
                return self.refused(said, "it is there with other properties")
            if isinstance(found, workflow.AMQPConnectorStackTimeout):
                return self.connecting_failed(TimeoutError())
            if isinstance(found, OSError):
                return self.connecting_failed(found)
        return self.unavailable(_said(error))


def _inner(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it was made of."""
    yield error
    inner = (*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args)
    for more in inner:
        if isinstance(more, BaseException):
            yield from _inner(more)


def _said(error: BaseException) -> str:
    text = str(getattr(error, "reply_text", "") or error)
    return text if text and text != "()" else f"the connection is lost ({type(error).__name__})"
