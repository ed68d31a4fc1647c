"""A server of calls: a hub in a loop in a thread, with its gRPC and HTTP fronts.

The same runs in a topology's driver and as `topo drpc`, whose address outlives drivers and serves
many topologies. A token is always asked for. Beyond loop-back, the token has to be one that was
chosen for it, and TLS keeps it from crossing the network in plain text.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

import topo.forks  # noqa: F401 - before gRPC is imported
from topo.config.masters import is_loopback, join_address, split_address
from topo.drpc.access import Access
from topo.drpc.calls import DEFAULT_SECS, MOST_WAITING, Calls, End, Figures
from topo.drpc.errors import SERVER_SHUTDOWN, SERVER_TIMEOUT, DrpcError
from topo.drpc.grpc_front import OPTIONS, GrpcFront
from topo.drpc.hub import Hub
from topo.errors import ConfigError, TopoError
from topo.serving.listening import OTHER_PORT, BindError, address_of, listening
from topo.tracking.security import Tls
from topo.tracking.server import server_credentials, why_not_bound

LOOPBACK = "127.0.0.1:0"
_START_SECS = 10.0
_GRACE_SECS = 1.0


@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, and whom it lets in."""

    bind: str = LOOPBACK
    http: str | None = None
    access: Access = field(default_factory=Access)
    has_chosen_token: bool = False
    """True iff the token comes from a file of the user's."""
    tls: Tls | None = None
    tls_files: tuple[str, str] | None = None
    """The certificate's file and its key's, for HTTP."""
    timeout_secs: float = DEFAULT_SECS
    most_waiting: int = MOST_WAITING


class DrpcServer:
    """A server at an address; `start` binds it, `stop` ends all calls."""

    def __init__(self, options: ServerOptions, functions: Iterable[str] = ()) -> None:
        self._options = options
        self._calls = Calls(functions, options.most_waiting)
        for bind in filter(None, (options.bind, options.http)):
            _check(bind, options)
        self.host, self._port = split_address(options.bind)
        self._http_socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hub: Hub | None = None
        self._ready = threading.Event()
        self._ending: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="topo-drpc", daemon=True)

    @property
    def address(self) -> str:
        return join_address(self.host, self._port)

    @property
    def http_address(self) -> str | None:
        if self._http_socket is None:
            return None
        return address_of(self._http_socket, self._options.http or "")

    @property
    def figures(self) -> Figures:
        return self._calls.figures

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> DrpcServer:
        if problem := why_not_bound(self.host, self._port):
            raise _cannot_listen(self.address, problem)
        if self._options.http is not None:
            self._http_socket = listening(self._options.http)
        self._thread.start()
        self._ready.wait(_START_SECS)
        if self._error is not None:
            raise _cannot_listen(self.address, str(self._error))
        return self

    def stop(self) -> None:
        """End all calls and give the addresses back; twice does no harm."""
        loop, ending = self._loop, self._ending
        if loop is not None and ending is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(ending.set)
            self._thread.join()
        if self._http_socket is not None:
            self._http_socket.close()

    def call(self, function: str, args: str, timeout: float = DEFAULT_SECS) -> str:
        """Call a function from another thread of this process."""
        loop, hub = self._loop, self._hub
        if loop is None or hub is None or not self._thread.is_alive():
            raise DrpcError(SERVER_SHUTDOWN, "the server has ended")
        future = asyncio.run_coroutine_threadsafe(hub.call(function, args, timeout), loop)
        try:
            end: End = future.result(timeout + _START_SECS)
        except TimeoutError:
            future.cancel()
            raise DrpcError(SERVER_TIMEOUT, f"no result within {timeout:g} s") from None
        return end.value()

    # -- the loop's thread ----------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        options = self._options
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        self._hub = hub = Hub(self._calls)
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers(
            tuple(GrpcFront(hub, options.access, options.timeout_secs).handlers)
        )
        if options.tls is None:
            self._port = server.add_insecure_port(self.address)
        else:
            self._port = server.add_secure_port(self.address, server_credentials(options.tls))
        await server.start()
        http, serving = None, None
        if self._http_socket is not None:
            http = _http_server(hub, options, self._http_socket)
            serving = asyncio.ensure_future(http.serve())
        self._ready.set()
        try:
            await self._ending.wait()
        finally:
            hub.close()
            if http is not None and serving is not None:
                http.stop()
                await serving
            await server.stop(_GRACE_SECS)


def _http_server(hub: Hub, options: ServerOptions, listener: socket.socket) -> Any:
    from topo.drpc.http_front import application  # these cost a tenth of a second
    from topo.serving.server import WebServer

    certificate, key = options.tls_files or (None, None)
    return WebServer(
        application(hub, options.access, options.http or "", options.timeout_secs),
        [listener],
        connections=options.most_waiting,
        at_once=2 * options.most_waiting,
        grace_secs=_GRACE_SECS,
        certificate=certificate,
        key=key,
    )


def _check(bind: str, options: ServerOptions) -> None:
    host, _ = split_address(bind)
    if is_loopback(host):
        return
    if not options.has_chosen_token:
        raise ConfigError(
            f"{bind} is reached from other machines, and nobody there could know the token",
            hint="--token-file FILE, whose first line is the token; or bind to 127.0.0.1",
        )
    if options.tls is None:
        raise ConfigError(
            f"{bind} is reached from other machines, and tokens would cross the network in plain "
            "text",
            hint="--tls-cert FILE --tls-key FILE; or bind to 127.0.0.1 and use an SSH tunnel",
        )


def _cannot_listen(address: str, why: str) -> TopoError:
    return BindError(f"cannot listen on {address}: {why}", hint=OTHER_PORT)
