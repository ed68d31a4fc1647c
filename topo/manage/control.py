"""What a command and the driver of one topology say to each other: paths, and answers of their own.

Documents of figures, errors and batches are those that `topo stats --json` and its like print.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from topo.manage.timeline import PAGE
from topo.serving.endpoints import Parameter
from topo.topology.layout import MAX_TASKS

PREFIX = "/control/v1"
"""Another number is another way to talk: a driver may be of an older topo than the command."""
MOST_WAIT_SECS = 1e9
"""The longest that a kill waits; JSON has no infinity."""
NUMBERS = (
    Parameter("workers", int, "How many slots.", place="body", least=1, most=MAX_TASKS),
    Parameter(
        "tasks",
        dict,
        "Other numbers of tasks, by component.",
        place="body",
        values=Parameter("tasks", int, least=1, most=MAX_TASKS),
    ),
)
"""The numbers of a rebalance."""
PAGING = (
    Parameter("before", int, "Only batches before that of this number."),
    Parameter("limit", int, "The latest so many.", PAGE, least=1, most=1000),
)
"""The parameters by which batches are gone through."""


BOUND = "bound"
"""How a token begins that is not shown itself. Those of before are hexadecimal."""


def bearer_for(token: str, address: str) -> str:
    """Return what a command shows to the driver at an address; the token itself is never sent.

    Each driver draws a token. What is shown to somebody else, who has the port of a driver that was
    killed, is of use nowhere else: not to the next driver, at another port, nor to one after that.
    A token that is not BOUND is that of a driver from before an upgrade, which asks for it itself.
    """
    if not token.startswith(BOUND):
        return token
    return hmac.digest(token.encode(), address.encode(), "sha256").hex()


@dataclass(frozen=True)
class DriverStatus:
    """The state of a driver's run."""

    id: str = ""
    status: str = ""
    reason: str = ""
    pending: int = 0
    """Messages that spouts emitted and that are neither acked nor failed."""
    batch: int | None = None
    slots: int = 0
    """0 before it is known."""
    rebalance_failure: str = ""
    """The reason that it went back to the slots that it had, the last time it was rebalanced."""


@dataclass(frozen=True)
class Changed:
    """The status after a change, and before it."""

    status: str
    was: str
