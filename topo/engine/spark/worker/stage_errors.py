"""A stage's error on its way through Spark, which keeps nothing of an exception but its text.

The text of an error may contain user data: a bolt's `ValueError(tup.line)` puts a
stranger's line into it, and Spark hands the whole text to the driver. The driver therefore
unpickles only what is signed with the run's token, which data cannot contain: each driver draws a
new one for its ackers, and only its workers get it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import pickle
import re

from topo.errors import TopoError
from topo.wire.column import dump

STATE_REFUSED = "state-refused"
"""The code of an error of Spark's own in taking the records of a slot."""
_SIGNED = re.compile(r"topo-error-([0-9a-f]{64}):([A-Za-z0-9+/=]+);")


class StageError(Exception):
    """An error as a stage raises it: readable, and with the pickled original signed behind it."""

    @classmethod
    def of(cls, error: TopoError, token: str) -> StageError:
        """Wrap `error` for its way; `token` is the run's."""
        packed = dump(error)
        signed = f"topo-error-{_signature(packed, token)}:{base64.b64encode(packed).decode()};"
        readable = str(error).encode("utf-8", "backslashreplace").decode()
        return cls(f"{readable}\n{signed}")

    @staticmethod
    def find_in(text: str, token: str) -> TopoError | None:
        """Return the error that a stage of this run raised, extracted from Spark's text."""
        for match in _SIGNED.finditer(text):
            signature, encoded = match.groups()
            try:
                packed = base64.b64decode(encoded, validate=True)
            except ValueError:  # a foreign text of the same form
                continue
            if hmac.compare_digest(signature, _signature(packed, token)):
                error: TopoError = pickle.loads(packed)
                return error
        return None


def _signature(packed: bytes, token: str) -> str:
    return hmac.new(token.encode(), b"topo stage error\0" + packed, hashlib.sha256).hexdigest()
