"""The ends of a call that are no answer, under Storm's names where Storm has one."""

from __future__ import annotations

from topo.errors import TopoError

FAILED_REQUEST = "FAILED_REQUEST"
SERVER_SHUTDOWN = "SERVER_SHUTDOWN"
SERVER_TIMEOUT = "SERVER_TIMEOUT"
UNKNOWN_FUNCTION = "UNKNOWN_FUNCTION"
TOO_MANY = "TOO_MANY"
TOO_LARGE = "TOO_LARGE"
NOT_ALLOWED = "NOT_ALLOWED"
UNREACHABLE = "UNREACHABLE"

CODES = (
    FAILED_REQUEST,
    SERVER_SHUTDOWN,
    SERVER_TIMEOUT,
    UNKNOWN_FUNCTION,
    TOO_MANY,
    TOO_LARGE,
    NOT_ALLOWED,
    UNREACHABLE,
)


class DrpcError(TopoError):
    """A call that has no answer: `code` is one of Storm's or topo's, `reason` says why."""

    def __init__(self, code: str, reason: str, *, hint: str = "") -> None:
        super().__init__(reason, hint=hint, code=code)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return DrpcError, (self.code, self.reason), {"hint": self.hint}
