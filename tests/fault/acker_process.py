"""Ackers as processes of their own, to be killed and stopped by their process id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from topo.tracking.transport import AckerTarget, GrpcTransport, PendingCall

ROOT = Path(__file__).parents[2]


class AckerProcess:
    """`topo acker` on loop-back; `restart` puts another one at the same address."""

    def __init__(self, *options: str) -> None:
        self.options = options
        self.address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "topo.cli", "acker", "--bind", self.address, "--json"]
        self.process = subprocess.Popen(
            [*command, *self.options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"no acker: {self.process.communicate()[1]}")
        self.announced = json.loads(line)
        self.address = self.announced["address"]

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.end()

    def restart(self) -> None:
        self.kill()
        self.start()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """Wait until it has ended; its exit code, and what it said on stderr."""
        said = self.process.communicate(timeout=30)[1]
        return self.process.returncode, said

    def __enter__(self) -> AckerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()
        else:
            self.process.communicate()


class Processes:
    """The ackers of a small world, each a process; the clock is that of the machine."""

    def __init__(self, count: int) -> None:
        self.processes = [AckerProcess() for _ in range(count)]
        addresses = tuple(process.address for process in self.processes)
        self.target = AckerTarget("small", "secret", addresses, call_secs=5.0, give_up_secs=30.0)
        self._transport = GrpcTransport(self.target)

    @property
    def now(self) -> float:
        return time.time()

    def deliver(self, shard: int, method: str, request: bytes, timeout: float) -> PendingCall:
        return self._transport.start(shard, method, request, timeout)

    def lose_memory(self, shard: int) -> None:
        self.processes[shard].restart()

    def pause(self, secs: float) -> None:
        time.sleep(secs)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self._transport.close()
        for process in self.processes:
            process.__exit__(None, None, None)
