"""Who sends a request, and the error of one that is not answered; needs no extra."""

from __future__ import annotations

from collections.abc import Mapping

from topo.errors import TopoError


class Refused(TopoError):
    """A request that is not answered; `status` is that of HTTP."""

    code = "refused"

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


def bearer_of(headers: Mapping[str, str]) -> str | None:
    """Return the token of `Authorization: Bearer TOKEN`; None if that is not what was sent."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
