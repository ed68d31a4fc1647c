"""The decision to start a query that has failed again from its last commit.

A failure that another start may get over is tried again, as often in a row as the settings say; a
batch that was committed in between ends the row. Code that ends its process in the same place of
the same batch twice will do it again. A query also never begins before the batch with
which it began last: that means that the checkpoint is not the one it was.
"""

from __future__ import annotations

from topo.engine.spark.driver.query_errors import is_passing
from topo.engine.spark.worker.relay import SlotDied
from topo.errors import CheckpointError, Unavailable


class Restarts:
    """Counts the starts of one run's query, and the failures between them."""

    def __init__(self, checkpoint: str, most: int, of_each_start: int = 0) -> None:
        self._checkpoint = checkpoint
        self._of_each_start = of_each_start  # batches that commit before any user code has run
        self._most = most
        self._first = 0
        self._last = ""
        self.failures = 0
        """In a row, without a batch committed between."""

    def begin(self, batch: int) -> None:
        """Note the batch of the next query; raises CheckpointError if it is an earlier one."""
        if batch < self._first:
            raise CheckpointError(
                f"{self._checkpoint} has gone back from batch {self._first} to batch {batch}: "
                "somebody has deleted or replaced it, or a part of it",
                at=self._checkpoint,
                hint="bring it back and submit with --resume, or begin anew with --fresh",
                code="checkpoint-changed",
            )
        self._first = batch

    def failed(self, error: Exception, next_batch: int) -> None:
        """Count a failure; raises it if another start would not help."""
        has_progress = next_batch > self._first + self._of_each_start
        self.failures = 0 if has_progress else self.failures + 1
        if isinstance(error, Unavailable):
            return  # the user's word that it will pass
        again = isinstance(error, SlotDied) and str(error) == self._last and self.failures > 1
        self._last = str(error)
        if again or not is_passing(error) or self.failures > self._most:
            raise error
