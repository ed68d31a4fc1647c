"""Binding and serving the pages; what is refused before the first request.

Bound to loop-back, only this machine reaches the pages. Any other address needs TLS, or a proxy
that does TLS and says who the user is.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

import uvicorn

from topo.config.masters import is_loopback, split_address
from topo.errors import ConfigError, words_of
from topo.manage.api import Management
from topo.manage.registry import Registry
from topo.metrics.serving import BindError
from topo.ui.app import Site, application
from topo.ui.audit import AuditLog
from topo.ui.connections import MOST_AT_ONCE, LimitedConnection
from topo.ui.security import COOKIE, Guard, Tokens, host_names

DEFAULT_BIND = "127.0.0.1:8321"
_GRACE_SECS = 3
_uvicorns_errors = logging.getLogger("uvicorn.error")


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


class Server:
    """The pages of one registry, bound to an address; `run` serves them until `stop`."""

    def __init__(self, registry: Registry, options: Options) -> None:
        host, port = split_address(options.bind)
        _check(host, options)
        self._socket = _bound(host.strip("[]"), port, options.bind)
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
        site = Site(
            Management(registry),
            guard,
            environment=options.environment,
            allow_submit=options.allow_submit and not options.read_only,
        )
        config = uvicorn.Config(
            application(site),
            http=LimitedConnection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_SECS,
            limit_concurrency=MOST_AT_ONCE,
            h11_max_incomplete_event_size=32 << 10,
            ssl_certfile=options.tls_certificate,
            ssl_keyfile=options.tls_key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            self._socket.close()
            raise ConfigError(
                f"cannot read the certificate or its key: {words_of(error)}"
            ) from None
        self._server = _Uvicorn(config, site)

    def link(self, role: str) -> str:
        """Return the address that logs a browser in with a role."""
        return f"{self.url}/login?token={self.tokens.of(role)}"

    def run(self) -> None:
        """Serve until a signal, or `stop` from another thread."""
        level = _uvicorns_errors.level
        try:
            self._server.run(sockets=[self._socket])
        finally:
            _uvicorns_errors.setLevel(level)
            self.close()

    def close(self) -> None:
        """Give the address back."""
        self._socket.close()
        self._audit.close()

    @property
    def is_up(self) -> bool:
        """True once requests are answered."""
        return self._server.started

    def stop(self) -> None:
        """End `run`; may be called from any thread."""
        self._server.should_exit = True


class _Uvicorn(uvicorn.Server):
    """uvicorn, which ends the open event streams before it waits for requests in work."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.streams.close()
        # What is still in work when the time is over is cut off, and that is no error.
        _uvicorns_errors.setLevel(logging.CRITICAL)
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)  # in which their sockets are closed, before the loop is


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


def _bound(host: str, port: int, bind: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, TCP has asyncio turn Nagle's algorithm off: it costs 40 ms on each answer.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise BindError(
            f"cannot serve at {bind}: {words_of(error)}",
            hint="is another topo ui running? --bind 127.0.0.1:0 takes any free port",
        ) from None
    return made
