"""Binding and serving the pages; what is refused before the first request.

Bound to loop-back, only this machine reaches the pages. Any other address needs TLS, or a proxy
that does TLS and says who the user is.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starlette.routing import BaseRoute

from topo.config.masters import is_loopback, split_address
from topo.errors import ConfigError
from topo.manage.api import Management
from topo.manage.registry import Registry
from topo.serving.listening import listening
from topo.serving.server import WebServer
from topo.ui.app import Site, application
from topo.ui.audit import AuditLog
from topo.ui.events import SHARED_SECS, Streams
from topo.ui.security import COOKIE, Guard, Tokens, host_names

Routes: TypeAlias = Callable[[Management], Sequence[BaseRoute]]
DEFAULT_BIND = "127.0.0.1:8321"


@dataclass(frozen=True)
class Options:
    """The options of `topo ui`."""

    bind: str = DEFAULT_BIND
    hosts: Sequence[str] = ()
    read_only: bool = False
    allow_submit: bool = False
    tls_certificate: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    environment: str = ""
    shared_secs: float = SHARED_SECS


class Server:
    """The pages of one registry, bound to an address; `run` serves them until `stop`.

    `more` makes the routes of other APIs, which the same guard lets nobody past.
    """

    def __init__(self, registry: Registry, options: Options, more: Sequence[Routes] = ()) -> None:
        host, port = split_address(options.bind)
        _check(host, options)
        self._socket = listening(
            options.bind, "is another topo ui running? --bind 127.0.0.1:0 takes any free port"
        )
        port = self._socket.getsockname()[1]
        secure = options.tls_certificate is not None
        self.tokens = Tokens(registry.home)
        self._audit = AuditLog(registry.home / "ui-audit.jsonl")
        named = host if not _is_any(host) else socket.gethostname()
        shown = f"[{named.strip('[]')}]" if ":" in named else named
        self.url = f"{'https' if secure else 'http'}://{shown}:{port}"
        guard = Guard(
            self.tokens,
            hosts=host_names(named, port, options.hosts),
            secure=secure,
            behind_proxy=options.behind_proxy,
            read_only=options.read_only,
            cookie=f"{COOKIE}_{port}",
            audit=self._audit.write,
        )
        management = Management(registry)
        site = Site(
            management,
            guard,
            environment=options.environment,
            allow_submit=options.allow_submit and not options.read_only,
            streams=Streams(options.shared_secs),
            more=[route for routes in more for route in routes(management)],
        )
        self._server = WebServer(
            application(site),
            [self._socket],
            certificate=options.tls_certificate,
            key=options.tls_key,
            ending=site.streams.close,  # or their requests would be waited for
        )

    def link(self, role: str) -> str:
        """Return the address that logs a browser in with a role."""
        return f"{self.url}/login?token={self.tokens.of(role)}"

    def run(self) -> None:
        """Serve until a signal, or `stop` from another thread."""
        try:
            self._server.run()
        finally:
            self.close()

    def close(self) -> None:
        """Give the address back."""
        self._server.close()
        self._audit.close()

    @property
    def is_up(self) -> bool:
        """True once requests are answered."""
        return self._server.started

    def stop(self) -> None:
        """End `run`; may be called from any thread."""
        self._server.stop()


def _check(host: str, options: Options) -> None:
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise ConfigError(
            "TLS needs a certificate and its key", hint="--tls-cert FILE --tls-key FILE"
        )
    guarded = options.tls_certificate is not None or options.behind_proxy
    if not is_loopback(host) and not guarded:
        raise ConfigError(
            f"{options.bind} is reached from other machines, and tokens would cross the network "
            "in plain text",
            hint="--tls-cert FILE --tls-key FILE, or --behind-proxy; or bind to 127.0.0.1 and "
            "use an SSH tunnel",
        )
    if _is_any(host) and not options.hosts:
        raise ConfigError(
            f"{options.bind} stands for every address of this machine",
            hint="--host NAME says under which name the pages are asked for",
        )


def _is_any(host: str) -> bool:
    return host.strip("[]") in ("0.0.0.0", "::")
