"""The seam between a run's driver and whoever commits its batches, whatever the mode.

In micro-batches these are the ackers (`client.AckerControl`), in this process or elsewhere; in
real-time mode it is the coordinator of the slots, where a batch is called an epoch. The driver
follows both alike: it takes in what is committed, and gives the mode from the next batch on.
"""

from __future__ import annotations

from typing import Protocol

from topo.tracking.figures import AckerStatus
from topo.tracking.plan import Mode


class Commits(Protocol):
    """Whoever commits a run's batches."""

    def status(self, payloads_after: int | None = None) -> AckerStatus:
        """Return figures, with the reports of committed batches after this number, if there is one.

        Those up to it are dropped: the driver has them.
        """

    def command(self, mode: Mode) -> int:
        """Set the mode from the next batch on; return the command's number."""
