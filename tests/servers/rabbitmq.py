"""RabbitMQ, run by the user `rabbitmq` where the tests run as root; it takes seconds to start."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.processes import (
    ServerProcess,
    end_with_tests,
    free_port,
    may_look_for,
    missing,
)

_LIBRARY = Path("/usr/lib/rabbitmq/lib")


class RabbitServer:
    """A broker with the user guest, and what tests ask of it."""

    def __init__(self, programs: Path) -> None:
        # Not below pytest's directory, which other users may not enter.
        self.directory = Path(tempfile.mkdtemp(prefix="topo-rabbitmq-"))
        self.directory.chmod(0o755)
        self.port, distribution, mapper = free_port(), free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}"
        (self.directory / "plugins").write_text("[].")
        (self.directory / "rabbitmq.conf").write_text("loopback_users = none\n")
        as_user: list[str] = []
        if os.geteuid() == 0:
            for path in (self.directory, *self.directory.iterdir()):
                shutil.chown(path, "rabbitmq")
            as_user = ["setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--init-groups"]
        settings = {
            "HOME": self.directory,
            "RABBITMQ_NODENAME": f"topo{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": distribution,
            "RABBITMQ_MNESIA_BASE": self.directory / "db",
            "RABBITMQ_LOG_BASE": self.directory / "log",
            "RABBITMQ_CONFIG_FILE": self.directory / "rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.directory / "plugins",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": mapper,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # Two cores: schedulers that spin take them from the tests.
            "RABBITMQ_SCHEDULER_BIND_TYPE": "u",
        }
        env = [f"{name}={value}" for name, value in settings.items()]
        command = ["env", *env, *as_user, str(programs / "rabbitmq-server")]
        self.process = ServerProcess("rabbitmq", command, self.directory, self.port)
        self._mapper = mapper
        self.start()

    def start(self) -> None:
        self.process.start(self._answers)
        with warnings.catch_warnings():
            # What pika leaves open if a handshake fails would be a warning in some later test.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def kill(self) -> None:
        """Kill the broker where it stands."""
        for pid in self._pids("beam.smp"):
            os.kill(pid, signal.SIGKILL)
        self.process.kill()

    def stop(self) -> None:
        """Stop it with its port mapper, and remove its data."""
        for name in ("beam.smp", "epmd"):
            for pid in self._pids(name):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _pids(self, program: str) -> list[int]:
        """Return the processes of this server, known by what is in their environment."""
        found = []
        mark = f"ERL_EPMD_PORT={self._mapper}\0".encode()
        for path in Path("/proc").iterdir():
            try:
                if path.name.isdigit() and (path / "comm").read_text().strip() == program:
                    is_ours = mark in (path / "environ").read_bytes()
                    found += [int(path.name)] if is_ours else []
            except OSError:
                continue
        return found

    def _answers(self) -> bool:
        import pika

        try:
            with self.channel():
                return True
        except (pika.exceptions.AMQPError, OSError):
            return False

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """Give a channel."""
        import pika

        parameters = pika.URLParameters(f"{self.url}/%2F?socket_timeout=10")
        connection = pika.BlockingConnection(parameters)
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()

    def queue(self, **arguments: Any) -> str:
        """Make a queue with a name of its own."""
        name = f"q{uuid.uuid4().hex[:12]}"
        with self.channel() as channel:
            channel.queue_declare(name, durable=True, arguments=arguments)
        return name

    def write(self, queue: str, bodies: Iterable[bytes], **properties: Any) -> None:
        """Publish these, and wait until the broker has them."""
        import pika

        with self.channel() as channel:
            channel.tx_select()
            for body in bodies:
                made = pika.BasicProperties(delivery_mode=2, **properties)
                channel.basic_publish("", queue, body, made)
            channel.tx_commit()

    def read(self, queue: str) -> list[Any]:
        """Take all messages of a queue: (properties, body)."""
        found: list[Any] = []
        with self.channel() as channel:
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return found
                found.append((properties, body))

    def length(self, queue: str) -> int:
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

    def control(self, *words: str) -> None:
        """Run rabbitmqctl."""
        env = {
            **os.environ,
            "HOME": str(self.directory),
            "ERL_EPMD_PORT": str(self._mapper),
            "RABBITMQ_NODENAME": f"topo{self.port}@localhost",
        }
        program = next(_LIBRARY.glob("*/sbin/rabbitmqctl"))
        command = [str(program), *words]
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--init-groups", *command]
        subprocess.run(command, check=True, capture_output=True, env=env, timeout=60)


def start() -> RabbitServer:
    """Start a server; skip the test where RabbitMQ is not installed."""
    may_look_for("RabbitMQ")
    programs = next(iter(sorted(_LIBRARY.glob("rabbitmq_server-*/sbin"))), None)
    return RabbitServer(programs or missing("RabbitMQ"))


_lock = threading.Lock()
_shared: list[RabbitServer] = []


def shared() -> RabbitServer:
    """Start a server for all tests of this process: starting takes longer than any of them."""
    with _lock:
        if not _shared:
            _shared.append(start())
            end_with_tests(_shared[0].stop)
        return _shared[0]
