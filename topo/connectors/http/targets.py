"""Sinks over a `Target`: arguments that they all have, one connection, and what waits for it.

Elasticsearch's and ClickHouse's sinks and HttpBolt differ in their requests alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topo.config.secrets import Secret
from topo.connectors.addresses import check_tls, check_url
from topo.connectors.base import OnBad, check_positive, load_client
from topo.connectors.http.client import REQUIRES, SCHEMES, Target, login_of
from topo.connectors.outbox import OutboxSink
from topo.tuples import Tuple

_ANY_URL = "http://localhost"
"""Stands where each request has a URL of its own."""


class TargetSink(OutboxSink):
    """A sink whose task sends its requests to one target."""

    requires: Iterable[str] = (REQUIRES,)
    transient: Iterable[str] = ("_target", *OutboxSink.transient)
    guarantees = ("none", "at_least_once", "exactly_once")
    concurrency = 1
    """How many connections there may be."""

    def set_target(
        self,
        url: str | Secret | Callable[[Tuple], str | None],
        *,
        headers: Mapping[str, str | Secret] | None,
        tls: Mapping[str, Any] | None,
        timeout_secs: float,
        guarantee: str,
        map: Callable[[Tuple], Any] | None,
        retry_secs: float,
        on_bad: OnBad,
        user: str | Secret | None = None,
        password: str | Secret | None = None,
    ) -> None:
        """Check and keep what every such sink has; called by the constructor."""
        if not callable(url):
            check_url(self.connector, url, SCHEMES)
        check_tls(self.connector, tls)
        check_positive(self.connector, timeout_secs=timeout_secs)
        self.url, self.headers = url, dict(headers or {})
        self.login = login_of(self.connector, user, password)
        self.tls = None if tls is None else dict(tls)
        self.timeout_secs = timeout_secs
        self.set_up(
            guarantee=guarantee,
            after_commit=guarantee == "exactly_once",
            map=map,
            on_bad=on_bad,
            retry_secs=retry_secs,
        )

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        load_client("httpx", self.connector, "http")
        self._target: Target | None = None

    def cleanup(self) -> None:
        if self._target is not None:
            self._target.close()

    def target(self) -> Target:
        """Return the target, and what connects to it."""
        if self._target is None:
            self._target = Target(
                self.connector,
                _ANY_URL if callable(self.url) else self.url,
                self.headers,
                self.tls,
                timeout_secs=self.timeout_secs,
                connections=self.concurrency,
                auth=self.login,
            )
        return self._target
