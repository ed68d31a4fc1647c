"""A client of MongoDB, and its errors as topo's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from topo.config.secrets import Secret, is_secret, revealed, without_password
from topo.connectors.addresses import check_form_of_url, check_tls, tls_context
from topo.connectors.base import load_client
from topo.connectors.remote import Remote
from topo.errors import ComponentError

REQUIRES = "pymongo>=4.9"
_URL = re.compile(r"mongodb(\+srv)?://[^\s/?]+")
_NAMES = {
    "database": re.compile(r'[^\s$./\\"\0\ud800-\udfff]{1,63}'),
    "collection": re.compile(r"(?!system\.)[^$.\0\ud800-\udfff]+(\.[^$.\0\ud800-\udfff]+)*"),
}
_DEFAULTS = {
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    "socketTimeoutMS": 30_000,
    "appname": "topo",
}
_OWN = {
    **dict.fromkeys(("document_class", "type_registry", "tz_aware", "uuidrepresentation"), "types"),
    **dict.fromkeys(("datetime_conversion", "unicode_decode_error_handler"), "types"),
    **dict.fromkeys(("tls", "ssl", "tlscafile", "tlscertificatekeyfile"), "tls="),
    **dict.fromkeys(("tlsallowinvalidcertificates", "tlsinsecure"), "tls="),
    "host": "url",
    "port": "url",
}
"""Settings of the client that are topo's own, and where they are given."""

_NO_ACCESS = (13, 18, 8000)
_NO_REPLICA_SET = 40573
_HISTORY_LOST = (136, 280, 286)
_PASSING = frozenset(
    [
        *(6, 7, 43, 50, 63, 64, 89, 91, 112, 133, 150, 189, 202, 234, 262, 317, 358, 384),
        *(9001, 10107, 11600, 11602, 13388, 13435, 13436),
    ]
)
"""Codes of elections, of servers that start or end, of limits of time, and of conflicts."""
_LABELS = ("RetryableWriteError", "ResumableChangeStreamError", "TransientTransactionError")


def check_access(
    connector: str, url: Any, tls: Mapping[str, Any] | None, settings: Mapping[str, Any] | None
) -> None:
    """Raise ComponentError if a deployment cannot be reached so."""
    check_form_of_url(connector, url, "mongodb://host:27017/?replicaSet=rs", _URL)
    check_tls(connector, tls)
    if tls and tls.get("key"):
        raise ComponentError(
            f"{connector}: tls={{'key': ...}}: MongoDB's client wants the key in the certificate's "
            "file",
            hint='cat cert.pem key.pem > both.pem, and tls={"cert": "both.pem"}',
        )
    for name, value in (settings or {}).items():
        if name.lower() in _OWN:
            raise ComponentError(
                f"{connector}: settings={{{name!r}: ...}} is not to be had: the connector sets it",
                hint=f"see {_OWN[name.lower()]}",
            )
        if is_secret(name) and not isinstance(value, Secret):
            raise ComponentError(
                f"{connector}: settings={{{name!r}: ...}} is in the open",
                hint="give Secret.env('NAME')",
            )


def check_name(connector: str, kind: str, name: Any) -> None:
    """Raise ComponentError if MongoDB has no database or collection of this name."""
    if not (isinstance(name, str) and _NAMES[kind].fullmatch(name)):
        raise ComponentError(f"{connector}: {kind}={name!r} is no name of a {kind}")


class Server(Remote):
    """A client, which connects when it is first used; `about` names the place in messages."""

    def __init__(
        self,
        connector: str,
        url: str | Secret,
        tls: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        about: str,
    ) -> None:
        text = revealed(url)
        super().__init__(connector, f"{without_password(text).partition('?')[0]}: {about}")
        pymongo = load_client("pymongo", connector, "mongodb")
        self._errors = load_client("pymongo.errors", connector, "mongodb")
        self._is_by_name = text.startswith("mongodb+srv:")
        options = {
            name: value
            for name, value in _DEFAULTS.items()
            if f"{name.lower()}=" not in text.lower()
        }
        options |= _tls_options(connector, tls) | revealed(settings)
        with self.reaching():
            try:
                self.client: Any = pymongo.MongoClient(text, **options)
            except (self._errors.InvalidURI, TypeError, ValueError):
                # Its words may have a part of the password.
                raise self.refused(
                    "the URL or settings= cannot be read",
                    "user and password are percent-encoded: urllib.parse.quote_plus",
                ) from None
        self.close_at_last(self.client.close)

    def close(self) -> None:
        self.client.close()

    def in_words(self, error: BaseException) -> Exception | None:
        errors = self._errors
        if isinstance(error, errors.OperationFailure):
            return self.answered(error)
        if isinstance(error, errors.ConfigurationError) and self._is_by_name:
            return self.unavailable(error)
        if isinstance(error, errors.ConnectionFailure):
            words = str(error).partition(", Timeout:")[0]
            if "CERTIFICATE_VERIFY_FAILED" in words:
                return self.refused(
                    f"the server's certificate is refused: {words}",
                    'tls={"ca": FILE} names the authority that signed it',
                )
            return self.unavailable(words)
        return self.refused(error) if isinstance(error, errors.PyMongoError) else None

    def answered(self, error: Any) -> Exception:
        """Return what to raise for what the server answers."""
        words = (error.details or {}).get("errmsg") or str(error)
        if error.code in _HISTORY_LOST:
            return self.refused(
                f"{words}: the changes after the saved position are gone from the oplog",
                "start with a fresh checkpoint, from what the collection has now; a longer "
                "oplog (replSetResizeOplog) lets topologies rest for longer",
            )
        if error.code in _NO_ACCESS:
            return self.refused(
                words, "user, password and authSource are in the URL: Secret.env('NAME')"
            )
        if error.code == _NO_REPLICA_SET:
            return self.refused(
                words, "mongod --replSet rs, and rs.initiate() once; one node will do"
            )
        is_cursor = isinstance(error, self._errors.CursorNotFound)
        if is_cursor or passes(error.code) or any(map(error.has_error_label, _LABELS)):
            return self.unavailable(words)
        return self.refused(words)


def passes(code: int | None) -> bool:
    """Return True if an answer of this code may be another one soon."""
    return code in _PASSING


def _tls_options(connector: str, tls: Mapping[str, Any] | None) -> dict[str, Any]:
    if tls is None:
        return {}
    tls_context(connector, tls)  # has words for files that cannot be read
    files = {"tlsCAFile": tls.get("ca"), "tlsCertificateKeyFile": tls.get("cert")}
    options: dict[str, Any] = {name: path for name, path in files.items() if path}
    if tls.get("check") is False:
        options["tlsAllowInvalidCertificates"] = True
    return {"tls": True, **options}
