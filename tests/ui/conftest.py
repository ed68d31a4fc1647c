"""The registry and the server that the tests of the web pages share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ui.worlds import World, world_in
from topo.storm_rest.routes import routes as storms_routes
from topo.ui.server import Options, Server

Serve = Callable[..., "Site"]


class Site:
    """A running server, and clients of it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = server.url

    def client(self, role: str | None = "operate", **more: Any) -> httpx.Client:
        """Return a client with the token of a role, as a script has it."""
        headers = {"Authorization": f"Bearer {self.server.tokens.of(role)}"} if role else {}
        return httpx.Client(base_url=self.url, headers=headers | more.pop("headers", {}), **more)

    @contextmanager
    def browser(self, role: str = "operate") -> Iterator[httpx.Client]:
        """A client that has logged in by the link, with a cookie."""
        with httpx.Client(base_url=self.url, follow_redirects=True) as client:
            client.get(self.server.link(role)).raise_for_status()
            yield client


@contextmanager
def serving(world: World, **options: Any) -> Iterator[Site]:
    """A server of a world's registry on a free port, whose answers are never those of before."""
    server = Server(
        world.registry,
        Options(**{"bind": "127.0.0.1:0", "shared_secs": 0.0, **options}),
        [storms_routes],
    )
    thread = threading.Thread(target=server.run, name="ui")
    thread.start()
    try:
        waiting = threading.Event()
        while not server.is_up and thread.is_alive():
            waiting.wait(0.005)
        yield Site(server)
    finally:
        server.stop()
        thread.join()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_in(tmp_path / "home", monkeypatch) as made:
        yield made


@pytest.fixture
def serve(world: World) -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(serving(world, **options))


@pytest.fixture
def site(serve: Serve) -> Site:
    return serve()
