"""A connection to an MQTT broker, in a thread of its own, over paho.

The thread connects, receives and keeps the connection alive, and ends when the connection does; it
never connects again by itself. Whoever wants another connection makes one: so an instance that was
rebuilt elsewhere does not take its session back, which brokers give to one client at a time.
`start` and `close` are for the task's thread, all callbacks come in the connection's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from topo.config.secrets import Secret
from topo.connectors.addresses import Address, parsed, tls_context
from topo.connectors.base import load_client
from topo.connectors.remote import Remote

REQUIRES = "paho-mqtt>=2.0"
SCHEMES = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
CONNECT_SECS = 10.0
_JOIN_SECS = 5.0

_WRONG = {
    "Bad user name or password": "the user or the password is wrong",
    "Not authorized": "the user or the password is wrong, or permission is missing",
    "Bad authentication method": "the broker wants another authentication",
    "Banned": "the broker has banned this client",
    "Client identifier not valid": "the broker refuses the client id",
    "Unsupported protocol version": "the broker does not speak this version of MQTT: version=4",
}


@dataclass(frozen=True)
class Access:
    """The address of a broker, and what it asks for."""

    connector: str
    url: str | Secret
    tls: Mapping[str, Any] | None
    version: int
    keepalive_secs: int

    def address(self) -> Address:
        return parsed(self.connector, self.url, SCHEMES)


class Connection(Remote):
    """One connection, from its beginning to its end."""

    def __init__(self, access: Access, client_id: str, *, session_secs: int, most: int) -> None:
        """Prepare a connection: `most` is how many messages may be unacked at a time."""
        self.address = access.address()
        super().__init__(access.connector, self.address.shown)
        self._mqtt = load_client("paho.mqtt.client", access.connector, "mqtt")
        properties = load_client("paho.mqtt.properties", access.connector, "mqtt")
        self._properties, self._packets = properties.Properties, None
        self._types = load_client("paho.mqtt.packettypes", access.connector, "mqtt").PacketTypes
        self.is_v5 = access.version == 5
        self._keepalive = access.keepalive_secs
        self._session_secs, self._most = session_secs, most
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._tls_socket: Any = None
        self.error: Exception | None = None
        """Why the connection ended, or was not made."""
        self.is_connected = threading.Event()
        self.has_ended = threading.Event()
        self.has_session = False
        """True if the broker had a session of this client."""
        self.window = 65_535
        """How many messages the broker takes before it has acked the first."""
        self.on_connected: Callable[[], None] = lambda: None
        self.on_ended: Callable[[], None] = lambda: None
        self.client = self._made(access, client_id)

    def _made(self, access: Access, client_id: str) -> Any:
        mqtt, address = self._mqtt, self.address
        more: dict[str, Any] = {} if self.is_v5 else {"clean_session": self._session_secs == 0}
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=mqtt.MQTTv5 if self.is_v5 else mqtt.MQTTv311,
            transport="websockets" if address.scheme in ("ws", "wss") else "tcp",
            reconnect_on_failure=False,
            manual_ack=True,
            **more,
        )
        if address.scheme in ("ws", "wss"):
            client.ws_set_options(path=address.path or "/mqtt")
        if address.scheme in ("mqtts", "wss"):
            client.tls_set_context(self._context(access))
        if address.user is not None:
            client.username_pw_set(address.user, address.password)
        client.connect_timeout = CONNECT_SECS
        client.max_inflight_messages = 0  # the sink counts for itself: paho ignores the broker's
        client.suppress_exceptions = True
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        return client

    def _context(self, access: Access) -> Any:
        """Return the context of TLS; it notes its socket, which paho leaves open if TLS fails."""
        context: Any = tls_context(access.connector, access.tls)
        wrap = context.wrap_socket

        def noting(*values: Any, **more: Any) -> Any:
            self._tls_socket = wrap(*values, **more)
            return self._tls_socket

        context.wrap_socket = noting
        return context

    def properties(self, packet: str, **values: Any) -> Any:
        """Return properties of a packet; None in versions that have none."""
        if not self.is_v5:
            return None
        made = self._properties(getattr(self._types, packet))
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def start(self) -> None:
        """Begin to connect."""
        self._thread = threading.Thread(target=self._run, name="topo-mqtt", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Say good-bye to the broker; what was acked before is sent first."""
        self._is_closed = True
        if self._thread is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self.client.disconnect()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECS)

    def check(self) -> None:
        """Raise the error of a connection that has ended."""
        if self.has_ended.is_set():
            raise self.error or self.unavailable("the connection is closed")

    def fail(self, error: Exception) -> None:
        """End the connection for a reason; the first one counts."""
        self.error = self.error or error
        self.client.disconnect()

    # -- the connection's thread --------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._connect()
            self.client.loop_forever()
        except Exception as error:  # OSError, and what paho raises for broken handshakes
            self.error = self.error or self.connecting_failed(error)
        finally:
            if self._tls_socket is not None:
                self._tls_socket.close()
            if self.error is None and not self._is_closed:
                self.error = self.unavailable(
                    "the connection is lost"
                    if self.is_connected.is_set()
                    else "the broker closed the connection before it answered; TLS and the version "
                    "of MQTT have to be those of its port"
                )
            self.has_ended.set()
            self.on_ended()

    def _connect(self) -> None:
        host, port = self.address.host, self.address.port
        if not self.is_v5:
            self.client.connect(host, port, self._keepalive)
            return
        properties = self.properties(
            "CONNECT", SessionExpiryInterval=self._session_secs, ReceiveMaximum=self._most
        )
        clean = self._session_secs == 0
        self.client.connect(host, port, self._keepalive, clean_start=clean, properties=properties)

    def _connected(self, client: Any, userdata: Any, flags: Any, reason: Any, more: Any) -> None:
        if self._is_closed:
            client.disconnect()
            return
        if reason.is_failure:
            self.fail(self._refused(str(reason)))
            return
        self.has_session = bool(flags.session_present)
        self.window = int(getattr(more, "ReceiveMaximum", self.window)) if more else self.window
        self.is_connected.set()
        self.on_connected()

    def _refused(self, reason: str) -> Exception:
        wrong = _WRONG.get(reason)
        if wrong is None:
            return self.unavailable(f"the broker refuses the connection: {reason}")
        return self.refused(
            f"{wrong} ({reason})",
            "user and password are in the URL: Secret.env('NAME') hides it",
        )

    def _disconnected(self, client: Any, userdata: Any, flags: Any, reason: Any, _: Any) -> None:
        if self.error is None and not self._is_closed and flags.is_disconnect_packet_from_server:
            hint = ""
            if str(reason) == "Session taken over":
                hint = ": another client has the same id"
            self.error = self.unavailable(f"the broker ended the connection: {reason}{hint}")
