"""How the acker says no: each refusal has a kind, and each kind one status code on the wire."""

from __future__ import annotations

from enum import Enum


class Refusal(Enum):
    """Why a call was refused; the value is the name of its gRPC status code."""

    TOKEN = "UNAUTHENTICATED"
    UNKNOWN = "NOT_FOUND"
    EPOCH = "FAILED_PRECONDITION"
    BATCH = "OUT_OF_RANGE"
    FENCE = "ABORTED"
    MALFORMED = "INVALID_ARGUMENT"
    LIMIT = "RESOURCE_EXHAUSTED"


class Refused(Exception):
    """A call that was refused; nothing has changed."""

    def __init__(self, kind: Refusal, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
