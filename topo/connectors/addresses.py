"""Addresses of servers: URLs with what they default to, TLS, and errors of connecting in words."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from topo.config.secrets import Secret, revealed, without_password
from topo.errors import ComponentError, Unavailable, words_of

TLS_SETTINGS = ("ca", "cert", "key", "check")


@dataclass(frozen=True)
class Address:
    """A server's address, as its URL says it."""

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None
    path: str
    shown: str
    """The URL without its password, for messages."""


def check_url(connector: str, url: Any, schemes: Mapping[str, int]) -> None:
    """Raise ComponentError if a URL is none of these schemes; a Secret is looked up later."""
    if not isinstance(url, Secret):
        parsed(connector, url, schemes)


def check_form_of_url(connector: str, url: Any, example: str, form: re.Pattern[str]) -> None:
    """Raise ComponentError if a URL that its client takes apart does not begin as one does."""
    if isinstance(url, Secret) or (isinstance(url, str) and form.match(url)):
        return
    text = _shown(url).partition("?")[0] if isinstance(url, str) else url
    raise ComponentError(
        f"{connector}: url={text!r}; it is {example}, for example",
        hint="with a password in it, give Secret.env('NAME')",
    )


def parsed(connector: str, url: Any, schemes: Mapping[str, int]) -> Address:
    """Return the parts of a URL; `schemes` has each one's port, the first may be left out."""
    text = revealed(url)
    first = next(iter(schemes))
    example = f"{first}://host:{schemes[first]}"
    shown = _shown(text) if isinstance(text, str) else repr(text)
    try:
        assert isinstance(text, str)
        parts = urlsplit(text if "://" in text else f"{first}://{text}")
        port = parts.port or schemes[parts.scheme]
        assert parts.hostname
    except (AssertionError, KeyError, ValueError):
        raise ComponentError(
            f"{connector}: url={shown!r}; it is {example}, for example",
            hint=f"one of {', '.join(f'{scheme}://' for scheme in schemes)}; with a password in "
            "it, give Secret.env('NAME')",
        ) from None
    return Address(
        parts.scheme,
        parts.hostname,
        port,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        parts.path + (f"?{parts.query}" if parts.query else ""),
        shown,
    )


def _shown(url: str) -> str:
    """Return a URL without its password; its scheme may be left out."""
    return without_password(url) if "://" in url else without_password(f"://{url}")[3:]


def check_tls(connector: str, tls: Any) -> None:
    """Raise ComponentError for settings of TLS that are not known."""
    unknown = [name for name in tls or {} if name not in TLS_SETTINGS]
    if unknown:
        raise ComponentError(
            f"{connector}: tls has no {unknown[0]!r}; it has {', '.join(TLS_SETTINGS)}",
            hint='"ca", "cert" and "key" are files; "check": False accepts any certificate',
        )


def tls_context(connector: str, tls: Mapping[str, Any] | None) -> ssl.SSLContext:
    """Return the context of these settings; raise ComponentError for files that cannot be read."""
    settings = dict(tls or {})
    try:
        context = ssl.create_default_context(cafile=settings.get("ca"))
        if settings.get("cert"):
            context.load_cert_chain(settings["cert"], settings.get("key"))
    except (OSError, ssl.SSLError) as error:
        raise ComponentError(
            f"{connector}: the files of tls={settings!r} cannot be used: {error}",
            hint="they have to be where the tasks run",
        ) from error
    if settings.get("check") is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def check_headers(connector: str, headers: Mapping[str, str]) -> None:
    """Raise ComponentError for a header that no request can carry; its value may be a secret."""
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise ComponentError(
                f"{connector}: headers={{{name!r}: ...}}: its value has a character that no header "
                "carries",
                hint="a header is printable ASCII, without line breaks",
            )


def connecting_failed(connector: str, shown: str, error: BaseException) -> Exception:
    """Return what to raise for an error of connecting: what may pass is Unavailable."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ComponentError(
            f"{connector}: {shown}: the server's certificate is refused: {error.verify_message}",
            hint='tls={"ca": FILE} names the authority that signed it',
        )
    if isinstance(error, ssl.SSLError):
        said = f"TLS failed, perhaps this port has none: {error.reason or error}"
    elif isinstance(error, socket.gaierror):
        said = f"the host's name is not known: {words_of(error)}"
    elif isinstance(error, TimeoutError):
        said = "no answer in time"
    else:
        said = str(error) or type(error).__name__
    return Unavailable(f"{connector}: {shown}: {said}")
