"""The client of the sources and of the sink: httpx, and its errors in words.

Redirects are followed by sources alone, and what `headers=` has goes to the URL's own origin only:
a server that redirects names any host it likes. A request that posts is never sent elsewhere: after
301, 302 and 303 a client asks by GET, without the body, and the answer to that acks nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

from topo.config.secrets import Secret, revealed, without_password
from topo.connectors.addresses import check_headers, parsed, tls_context
from topo.connectors.base import load_client
from topo.connectors.remote import Remote, passes
from topo.errors import ComponentError

REQUIRES = "httpx>=0.28"
SCHEMES = {"http": 80, "https": 443}
_LONGEST_RETRY_SECS = 300.0

Login: TypeAlias = "tuple[str | Secret, str | Secret]"


def login_of(connector: str, user: str | Secret | None, password: str | Secret | None) -> Any:
    """Return a login, or None if there is none; raise ComponentError for half of one."""
    if user is None and password is None:
        return None
    if user is None or password is None:
        raise ComponentError(
            f"{connector}: user= and password= belong together",
            hint='password=Secret.env("NAME"); a token goes into headers=',
        )
    return user, password


class Target(Remote):
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
        follows: bool = False,
        auth: Login | None = None,
        extra: str = "http",
    ) -> None:
        self.httpx = httpx = load_client("httpx", connector, extra)
        address = parsed(connector, url, SCHEMES)
        super().__init__(connector, address.shown)
        self.url: str = revealed(url)
        context = tls_context(connector, tls) if address.scheme == "https" else True
        own = revealed(dict(headers))
        check_headers(connector, own)
        origin = _origin(httpx.URL(self.url))

        def spare_others(request: Any) -> None:
            """Take the user's headers out of a request that a redirect sends to another origin."""
            if _origin(request.url) != origin:
                for name in own:
                    request.headers.pop(name, None)

        self.client: Any = httpx.Client(
            headers=own,
            auth=None if auth is None else tuple(map(revealed, auth)),
            timeout=timeout_secs,
            verify=context,
            limits=httpx.Limits(max_connections=connections),
            follow_redirects=follows,
            event_hooks={"request": [spare_others]} if follows else {},
            trust_env=False,
        )
        self.close_at_last(self.client.close)

    def close(self) -> None:
        self.client.close()

    def in_words(self, error: BaseException) -> Exception:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError):
                return self.connecting_failed(cause)
            cause = cause.__cause__ or cause.__context__
        said = str(error) or type(error).__name__
        if isinstance(error, self.httpx.TimeoutException):
            said = "no answer in time"
        permanent = (self.httpx.LocalProtocolError, self.httpx.UnsupportedProtocol)
        if isinstance(error, self.httpx.HTTPError) and not isinstance(error, permanent):
            return self.unavailable(said)
        return self.refused(said)

    def answered(self, response: Any, content: bytes = b"") -> Exception:
        """Return what to raise for an answer that is an error."""
        status = response.status_code
        told = " ".join(content[:2000].decode("utf-8", "replace").split())[:200]
        said = f"HTTP {status}{': ' if told else ''}{told}"
        if response.has_redirect_location:
            location = without_password(response.headers["location"])
            return self.refused(
                f"{said}: the server redirects to {location}",
                "a redirect is not followed with data: give that address as url=, if it is "
                "the server's",
            )
        if passes(status):
            return self.unavailable(said, retry_after(response))
        hint = "headers= has what it may want: {'Authorization': Secret.env('NAME')}"
        return self.refused(said, hint if status in (401, 403, 407) else "see url=")


def _origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


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
