"""Mosquitto, an MQTT broker: with users, with TLS, with what it is to keep over a kill."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.processes import ServerProcess, find_program, free_port, missing

_PLACES = ("/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto")
_SETTINGS = """
listener {port} 127.0.0.1
max_queued_messages 0
set_tcp_nodelay true
persistence {persistence}
autosave_interval 1
autosave_on_changes true
log_type error
"""


class MosquittoServer:
    """A broker, and what tests ask of it."""

    def __init__(self, program: str, *, keeps: bool, more: str) -> None:
        # Not below pytest's directory: the server gives up being root.
        self.directory = Path(tempfile.mkdtemp(prefix="topo-mosquitto-"))
        self.directory.chmod(0o755)
        port = free_port()
        self.port = port
        self.url = f"mqtt://127.0.0.1:{port}"
        settings = self.directory / "mosquitto.conf"
        access = "" if "allow_anonymous" in more else "allow_anonymous true\n"
        text = _SETTINGS.format(port=port, persistence="true" if keeps else "false")
        place = f"persistence_location {self.directory}/\n" if keeps else ""
        user = "user root\n" if os.geteuid() == 0 else ""
        settings.write_text(text + access + place + user + more)
        command = [program, "-c", str(settings)]
        self.process = ServerProcess("mosquitto", command, self.directory, port)
        self.process.start()

    def stop(self) -> None:
        """Stop it, and remove its data."""
        self.process.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def client(self, **more: Any) -> Iterator[Any]:
        """Give a connected client."""
        import paho.mqtt.client as mqtt

        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=uuid.uuid4().hex,
            protocol=mqtt.MQTTv5,
            reconnect_on_failure=False,
            **more,
        )
        connected = threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        assert connected.wait(30)
        try:
            yield client
        finally:
            client.disconnect()
            client.loop_stop()

    def write(self, topic: str, payloads: Iterable[bytes], **more: Any) -> None:
        """Publish these, and wait until the broker has them."""
        with self.client() as client:
            options = {"qos": 1, **more}
            infos = [client.publish(topic, payload, **options) for payload in payloads]
            for info in infos:
                info.wait_for_publish(30)

    @contextmanager
    def reader(self, topic: str) -> Iterator[list[Any]]:
        """Give a list that grows with what is published."""
        found: list[Any] = []
        with self.client() as client:
            subscribed = threading.Event()
            client.on_message = lambda client, data, message: found.append(message)
            client.on_subscribe = lambda *_: subscribed.set()
            client.subscribe(topic, 1)
            assert subscribed.wait(30)
            yield found


def start(*, keeps: bool = False, more: str = "") -> MosquittoServer:
    """Start a server; skip the test where Mosquitto is not installed."""
    program = find_program("Mosquitto", "mosquitto", places=_PLACES)
    return MosquittoServer(program, keeps=keeps, more=more)


def make_passwords(path: Path, user: str, password: str) -> None:
    """Write a file of passwords with one user."""
    program = find_program("mosquitto_passwd", "mosquitto_passwd")
    subprocess.run([program, "-b", "-c", path, user, password], check=True)
    path.chmod(0o644)


def make_certificates(directory: Path) -> dict[str, str]:
    """Make an authority and a server's certificate for 127.0.0.1; return their files."""
    run: Callable[[list[str]], object] = lambda command: subprocess.run(  # noqa: E731
        command, check=True, capture_output=True, cwd=directory
    )
    program = shutil.which("openssl") or missing("OpenSSL")
    new = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
           "-nodes", "-days", "2"]  # fmt: skip
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    run([*new, *name, "-keyout", "server.key", "-out", "server.pem"])
    (directory / "server.key").chmod(0o644)
    return {"cert": str(directory / "server.pem"), "key": str(directory / "server.key")}
