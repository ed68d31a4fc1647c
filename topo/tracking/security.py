"""Access to an acker: tokens, TLS, addresses."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from topo.errors import ConfigError, words_of

TOPOLOGY_KEY = "topology-bin"
TOKEN_KEY = "topo-token"
ADMISSION_KEY = "topo-admission"


def fresh_token() -> str:
    """Return a random secret that fits in metadata, a file or the environment."""
    return secrets.token_urlsafe(32)


def same_token(given: str, expected: str) -> bool:
    """True iff both are equal, compared in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


@dataclass(frozen=True)
class Tls:
    """One side's certificates, each a file's content; repr and logs do not show them.

    A server needs `certificate` and `key`; with `ca` it asks clients for certificates of that
    authority (mutual TLS). A client needs the `ca` of the server, unless the system trusts it,
    and for mutual TLS a `certificate` and `key` of its own.
    """

    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    ca: bytes | None = field(default=None, repr=False)

    @classmethod
    def read(
        cls, certificate: str | None = None, key: str | None = None, ca: str | None = None
    ) -> Tls:
        """Read PEM files; raise an error for a certificate without its key, or the reverse."""
        if (certificate is None) != (key is None):
            given, missing = ("certificate", "key") if certificate else ("key", "certificate")
            raise ConfigError(
                f"TLS has a {given} and no {missing}", hint=f"name the {missing}'s file as well"
            )
        return cls(_content(certificate), _content(key), _content(ca))

    @property
    def is_empty(self) -> bool:
        return self.certificate is None and self.ca is None


def _content(name: str | None) -> bytes | None:
    if name is None:
        return None
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {words_of(error)}") from None


def first_line(name: str) -> str:
    """Return the token in a file: its first line."""
    content = _content(name) or b""
    line = content.decode("utf-8", "replace").partition("\n")[0].strip()
    if not line:
        raise ConfigError(f"{name} is empty", hint="its first line is the token")
    return line
