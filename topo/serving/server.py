"""A server of an ASGI application, with limits on what a stranger can hold.

uvicorn does the protocol. What it lacks is in `connections`, and here: it ends at once when it is
told to and nothing is in work, where uvicorn looks ten times a second and then waits a tenth; so a
driver's server wakes up once a second at most, and ends with its driver.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from topo.errors import ConfigError, words_of
from topo.serving.connections import MOST_AT_ONCE, LimitedConnection

log = logging.getLogger("topo.serving")
logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its "uvicorn.error" is no error
GRACE_SECS = 3.0
"""How long requests in work may take when the server ends."""
HANDSHAKE_SECS = 10.0
"""How long TLS may take to begin; uvicorn leaves it at a minute, in which nobody counts whoever
holds a connection and says nothing."""
_ACCEPTED = 8
"""Connections that are accepted in one turn of the loop. Each is read some turns later: if as many
come meanwhile as may be held, it makes room for others with its request unread."""
_DATE_SECS = 1.0
_END_POLL_SECS = 0.005
_JOIN_SECS = 10.0


class WebServer(uvicorn.Server):
    """A server on sockets that listen already; it closes them when it ends."""

    def __init__(
        self,
        app: Any,
        listeners: Sequence[socket.socket],
        *,
        connections: int | None = None,
        at_once: int = MOST_AT_ONCE,
        grace_secs: float = GRACE_SECS,
        certificate: str | None = None,
        key: str | None = None,
        ending: Callable[[], None] = lambda: None,
    ) -> None:
        limited: Any = partial(LimitedConnection, most=connections)
        config = uvicorn.Config(
            app,
            http=limited,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=at_once,
            h11_max_incomplete_event_size=32 << 10,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._listeners = list(listeners)
        self._grace_secs = grace_secs
        self._ending = ending  # called in the loop when the end begins
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            self.close()
            raise ConfigError(
                f"cannot read the certificate or its key: {words_of(error)}"
            ) from None
        super().__init__(config)

    def run(self, sockets: object = None) -> None:
        """Serve in this thread until a signal or `stop`."""
        try:
            super().run(sockets=self._listeners)
        finally:
            self.close()

    async def serve(self, sockets: object = None) -> None:
        """Serve in a loop that runs already, until `stop`."""
        await super().serve(self._listeners)

    def stop(self) -> None:
        """End the server; may be called from any thread, and before it has begun."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._over.set)

    def close(self) -> None:
        """Give the addresses back."""
        for listener in self._listeners:
            listener.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.stop()

    async def startup(self, sockets: object = None) -> None:
        loop, config = asyncio.get_running_loop(), self.config
        http: Any = config.http_protocol_class
        protocol = partial(http, config=config, server_state=self.server_state, app_state={})
        self.servers = [
            await loop.create_server(
                protocol,
                sock=listener,
                ssl=config.ssl,
                backlog=_ACCEPTED,
                ssl_handshake_timeout=HANDSHAKE_SECS if config.ssl else None,
            )
            for listener in self._listeners
        ]
        for listener in self._listeners:
            listener.listen(config.backlog)  # how many may wait is another number
        self.started = True

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):  # which also writes the answers' date
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _DATE_SECS)

    async def shutdown(self, sockets: object = None) -> None:
        """Finish the requests in work; cut off what is still there after the grace."""
        self._ending()
        for server in self.servers:
            server.close()
        connections = self.server_state.connections
        for connection in list(connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_secs):
                while connections or self.server_state.tasks:
                    await asyncio.sleep(_END_POLL_SECS)
        for connection in list(connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        await asyncio.sleep(0)  # in which their sockets are closed, before the loop is


class ServerThread:
    """A server in a thread of its own, which answers when this object is made."""

    def __init__(self, server: WebServer, name: str) -> None:
        self._server = server
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the server. A request that outlives the grace does not hold up its caller."""
        self._server.stop()
        self._thread.join(_JOIN_SECS)

    def _run(self) -> None:
        try:
            self._server.run()
        except Exception:
            log.exception("the server of %s ended", self._thread.name)
