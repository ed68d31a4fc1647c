"""The client of the sources and of the sink: httpx, and its errors in words."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from topo.config.secrets import Secret, revealed
from topo.connectors.addresses import connecting_failed, parsed, tls_context
from topo.connectors.base import load_client
from topo.errors import ComponentError, Unavailable

REQUIRES = "httpx>=0.28"
SCHEMES = {"http": 80, "https": 443}
_LONGEST_RETRY_SECS = 300.0

_PASSING = (408, 425, 429)


def passes(status: int) -> bool:
    """Return True if the same request may be answered otherwise later."""
    return status in _PASSING or status >= 500


class Target:
    """A URL with what is sent along, and a pool of connections to it."""

    def __init__(
        self,
        connector: str,
        url: str | Secret,
        headers: Mapping[str, str | Secret],
        tls: Mapping[str, Any] | None,
        *,
        timeout_secs: float,
        connections: int = 1,
    ) -> None:
        self.connector = connector
        self.httpx = httpx = load_client("httpx", connector, "http")
        address = parsed(connector, url, SCHEMES)
        self.url = url.reveal() if isinstance(url, Secret) else url
        self.shown = address.shown
        context = tls_context(connector, tls) if address.scheme == "https" else True
        self.client: Any = httpx.Client(
            headers=revealed(dict(headers)),
            timeout=timeout_secs,
            verify=context,
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=True,
            trust_env=False,
        )
        # An instance that is rebuilt elsewhere is let go without a word.
        weakref.finalize(self, self.client.close).atexit = False

    def close(self) -> None:
        self.client.close()

    def in_words(self, error: Exception) -> Exception:
        """Return what to raise for an error of httpx."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError):
                return connecting_failed(self.connector, self.shown, cause)
            cause = cause.__cause__ or cause.__context__
        said = str(error) or type(error).__name__
        if isinstance(error, self.httpx.TimeoutException):
            said = "no answer in time"
        if isinstance(error, self.httpx.HTTPError):
            return Unavailable(f"{self.connector}: {self.shown}: {said}")
        return ComponentError(f"{self.connector}: {self.shown}: {said}")

    def answered(self, response: Any, content: bytes = b"") -> Exception:
        """Return what to raise for an answer that is an error."""
        status = response.status_code
        told = " ".join(content[:2000].decode("utf-8", "replace").split())[:200]
        said = f"{self.connector}: {self.shown}: HTTP {status}{': ' if told else ''}{told}"
        if passes(status):
            return Unavailable(said, retry_after(response))
        hint = "headers= has what it may want: {'Authorization': Secret.env('NAME')}"
        return ComponentError(said, hint=hint if status in (401, 403, 407) else "see url=")


def retry_after(response: Any) -> float | None:
    """Return the seconds that an answer asks to wait."""
    text = response.headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        secs = float(text)
    except ValueError:
        try:
            secs = parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, min(secs, _LONGEST_RETRY_SECS))
