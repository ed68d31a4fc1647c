"""The acker's refusals: each has a kind, and each kind one status code on the wire."""

from __future__ import annotations

from enum import Enum


class Refusal(Enum):
    """The kind of a refusal; the value is the name of its gRPC status code."""

    TOKEN = "UNAUTHENTICATED"
    UNKNOWN = "NOT_FOUND"
    EPOCH = "FAILED_PRECONDITION"
    BATCH = "OUT_OF_RANGE"
    FENCE = "ABORTED"
    MALFORMED = "INVALID_ARGUMENT"
    LIMIT = "RESOURCE_EXHAUSTED"
    JOURNAL = "DATA_LOSS"


class Refused(Exception):
    """The refusal of a call, which has changed nothing."""

    def __init__(self, kind: Refusal, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
