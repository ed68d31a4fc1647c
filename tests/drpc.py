"""A server of calls whose functions a thread of the test computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from topo.drpc.access import Access
from topo.drpc.calls import Holder
from topo.drpc.remote import RemoteAnswers, RemoteLine
from topo.drpc.server import DrpcServer, ServerOptions

Function = Callable[[str, str], str | None]
"""Returns the result of a function and its arguments; None: never. A ValueError fails the call."""


class Computing:
    """A server with both fronts, and a task for each function in a thread of its own."""

    token = "a-token-of-tests"

    def __init__(
        self,
        function: Function,
        names: list[str],
        *,
        timeout_secs: float = 20.0,
        access: Access | None = None,
    ) -> None:
        self._function = function
        self._names = names
        options = ServerOptions(
            http="127.0.0.1:0", access=access or Access(self.token), timeout_secs=timeout_secs
        )
        self.server = DrpcServer(options, names)
        self._woken = threading.Event()
        self._is_over = False
        self._lines: dict[str, RemoteLine] = {}
        self._thread = threading.Thread(target=self._compute)

    def __enter__(self) -> Self:
        self.server.start()
        self._answers = RemoteAnswers([self.server.address], self.token, None)
        self._lines = {name: self.line(name) for name in self._names}
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        self._woken.set()
        self._thread.join()
        for line in self._lines.values():
            line.close()
        self._answers.close()
        self.server.stop()

    def line(self, name: str, task: int = 0, taken: dict[str, int] | None = None) -> RemoteLine:
        """Open the line of a task that computes a function."""
        holder = Holder("checkpoint", name, task)
        return RemoteLine(
            self.server.address, self.token, None, holder, taken or {}, False, self._woken.set
        )

    @property
    def http_address(self) -> str:
        address = self.server.http_address
        assert address is not None
        return address

    def await_open(self, count: int) -> None:
        """Wait until so many calls are open."""
        while self.server.figures.open + self.server.figures.waiting < count:
            self._woken.wait(0.01)

    def stop(self) -> None:
        self.server.stop()

    def _compute(self) -> None:
        while not self._is_over:
            self._woken.clear()
            for name, line in self._lines.items():
                line.grant(1_000)
                for request in line.take():
                    self._answer(name, line, request.id, request.args)
            self._woken.wait(0.05)

    def _answer(self, name: str, line: RemoteLine, id: str, args: str) -> None:
        try:
            result = self._function(name, args)
        except ValueError as error:
            line.fail(id, str(error))
            return
        if result is not None:
            self._answers.deliver([(id, result)])
