"""The clients of Pub/Sub, and their errors as topo's.

Calls are started and not waited for: so a spout can wait for messages without a thread of its own,
and a sink publishes under several ordering keys at once. The client's own publisher and subscriber
have threads and queues in which they batch, extend and repeat; topo has all that in its state.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Literal

from topo.config.secrets import Secret
from topo.connectors.base import load_client
from topo.connectors.remote import Remote
from topo.errors import ComponentError, words_of
from topo.takeover import Shared

REQUIRES = "google-cloud-pubsub>=2.30"
EMULATOR = "PUBSUB_EMULATOR_HOST"
_EXTRA = "pubsub"
_SCOPE = "https://www.googleapis.com/auth/pubsub"
_PASSING = (
    *("Aborted", "Cancelled", "DeadlineExceeded", "InternalServerError", "ResourceExhausted"),
    *("RetryError", "ServiceUnavailable", "Unknown"),
)
_CALL_SECS = 30.0


def check_access(connector: str, emulator: Any, endpoint: Any, credentials: Any) -> None:
    """Raise ComponentError for what cannot be a server, or credentials in the open."""
    for name, value in (("emulator", emulator), ("endpoint", endpoint)):
        if value is not None and not (isinstance(value, str) and re.fullmatch(r"[^/\s]+", value)):
            raise ComponentError(
                f"{connector}: {name}={value!r}; it is a host and a port, localhost:8085"
            )
    if not (credentials is None or isinstance(credentials, (str, Secret))):
        raise ComponentError(
            f"{connector}: credentials are a {type(credentials).__name__}",
            hint="give the path of a service account's key, or Secret.env('NAME') with the key",
        )
    if isinstance(credentials, str) and credentials.lstrip().startswith("{"):
        raise ComponentError(
            f"{connector}: credentials are in the open",
            hint="give Secret.env('NAME'), or the path of the file where the tasks run",
        )


def check_name(connector: str, kind: str, name: Any) -> None:
    """Raise ComponentError if a name of a topic or subscription is not a whole one."""
    part = r"[^/\s\ud800-\udfff]+"
    if not isinstance(name, str) or not re.fullmatch(rf"projects/{part}/{kind}s/{part}", name):
        raise ComponentError(
            f"{connector}: {kind}={name!r}; it is projects/PROJECT/{kind}s/NAME, whole"
        )


class Refusal(ComponentError):
    """An answer that no waiting mends."""

    is_about_records = False
    """True if the records of the request are refused."""
    by_handle: Mapping[str, str] = {}
    """Of a subscription with exactly-once delivery: what became of each handle."""


class Service(Remote, Shared):
    """A client of one side of Pub/Sub; `about` names the place in messages."""

    def __init__(
        self,
        connector: str,
        side: Literal["Publisher", "Subscriber"],
        about: str,
        *,
        emulator: str | None,
        endpoint: str | None,
        credentials: str | Secret | None,
    ) -> None:
        super().__init__(connector, about)
        self.types: Any = load_client("google.pubsub_v1", connector, _EXTRA)
        self._exceptions = load_client("google.api_core.exceptions", connector, _EXTRA)
        self._auth = load_client("google.auth.exceptions", connector, _EXTRA)
        self._routing = load_client("google.api_core.gapic_v1.routing_header", connector, _EXTRA)
        grpc = load_client("grpc", connector, _EXTRA)
        self._rpc_error: Any = grpc.RpcError
        server = emulator or (os.environ.get(EMULATOR) if endpoint is None else None)
        options: dict[str, Any] = {}
        with self.reaching():
            if server:
                kind = getattr(self.types, f"{side}Client").get_transport_class("grpc")
                options["transport"] = kind(host=server, channel=grpc.insecure_channel(server))
            else:
                if credentials is not None:
                    options["credentials"] = self._login(connector, credentials)
                if endpoint is not None:
                    options["client_options"] = {"api_endpoint": endpoint}
            self._transport = getattr(self.types, f"{side}Client")(**options).transport

    def _login(self, connector: str, credentials: str | Secret) -> Any:
        accounts = load_client("google.oauth2.service_account", connector, _EXTRA).Credentials
        try:
            if isinstance(credentials, Secret):
                info = json.loads(credentials.reveal())
                return accounts.from_service_account_info(info, scopes=[_SCOPE])
            return accounts.from_service_account_file(credentials, scopes=[_SCOPE])
        except (OSError, ValueError, self._auth.GoogleAuthError) as error:
            # What is no account's key is not repeated: it may be half of one.
            reason = words_of(error) if isinstance(error, OSError) else "they are none"
            raise self.refused(
                f"the credentials cannot be used: {reason}",
                "they are the JSON of a service account's key: a path, or a Secret with it",
            ) from None

    def close(self) -> None:
        self._transport.close()

    def start(self, call: str, request: Any, place: str, secs: float = _CALL_SECS) -> Any:
        """Start a call; return its future, whose result `result_of` returns."""
        name = "topic" if "/topics/" in place else "subscription"
        header = self._routing.to_grpc_metadata(((name, place),))
        stub = getattr(self._transport, call)
        return stub.future(request, timeout=secs, metadata=[header])

    def result_of(self, future: Any) -> Any:
        """Wait for the result of a call; raise what `reaching` makes of its error."""
        with self.reaching():
            try:
                return future.result()
            except self._rpc_error as error:
                api_error: Exception = self._exceptions.from_grpc_error(error)
                raise api_error from error

    def in_words(self, error: BaseException) -> Exception | None:
        exceptions, auth = self._exceptions, self._auth
        if isinstance(error, exceptions.GoogleAPICallError):
            words = error.message or str(error)
            is_passing = isinstance(error, tuple(getattr(exceptions, name) for name in _PASSING))
            return self.unavailable(words) if is_passing else self._refusal(words, error)
        if isinstance(error, auth.DefaultCredentialsError):
            return self.refused(
                error,
                f"gcloud auth application-default login, or credentials=; {EMULATOR} for an "
                "emulator",
            )
        if isinstance(error, auth.GoogleAuthError):
            is_passing = getattr(error, "retryable", False)
            return self.unavailable(error) if is_passing else self.refused(error)
        return None

    def _refusal(self, words: str, error: Any) -> Refusal:
        exceptions = self._exceptions
        hint = ""
        if isinstance(error, exceptions.NotFound):
            hint = "topics and subscriptions are made beforehand"
        elif isinstance(error, exceptions.Forbidden):
            hint = "the account needs roles/pubsub.subscriber or roles/pubsub.publisher"
        elif isinstance(error, exceptions.Unauthenticated):
            hint = "see credentials="
        refusal = Refusal(f"{self.place}: {words}", hint=hint)
        refusal.is_about_records = isinstance(error, exceptions.InvalidArgument)
        refusal.by_handle = dict(getattr(error, "metadata", None) or {})
        return refusal
