"""The journal of failures beside the checkpoint: `topo-failures/SHARD-BATCH.json`.

A file is written before its batch can commit, and is needed until the next one has. What a batch
that never committed left behind is removed when the next epoch begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from topo.engine.spark.driver.checkpoint import Checkpoint
from topo.storage.checkpoints import FAILURES
from topo.tracking.journal import pack_failures, unpack_failures


class CheckpointJournal:
    """A `FailureJournal` in a checkpoint directory, on any file system that Spark reaches."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._written: dict[int, list[int]] = {}  # the batches on disk, by shard

    def begin(self, shard: int, first_batch: int) -> dict[int, str]:
        """Return the failures of the batch before `first_batch`; remove those of all others."""
        self._remove(shard, self._find(shard), lambda batch: batch != first_batch - 1)
        text = self._checkpoint.read(_name(shard, first_batch - 1))
        self._written[shard] = [first_batch - 1] if text else []
        return unpack_failures(text) if text else {}

    def forget(self, shard: int, first_batch: int) -> None:
        """Remove the failures of batches that are executed again."""
        written = self._written.get(shard, [])
        self._remove(shard, written, lambda batch: batch >= first_batch)
        self._written[shard] = [batch for batch in written if batch < first_batch]

    def write(self, shard: int, batch: int, failures: Mapping[int, str]) -> None:
        """Store the failures of a batch, and remove those that every spout has heard."""
        self._checkpoint.write(_name(shard, batch), pack_failures(failures))
        written = self._written.setdefault(shard, [])
        self._remove(shard, written, lambda earlier: earlier < batch - 1)
        self._written[shard] = [b for b in written if b >= batch - 1 and b != batch] + [batch]

    def failures_of(self, batch: int) -> dict[int, str]:
        """Return the failures of a batch, of all shards."""
        failures: dict[int, str] = {}
        for name in self._checkpoint.names_in(FAILURES):
            if name.partition("-")[2] == f"{batch}.json":
                failures.update(
                    unpack_failures(self._checkpoint.read(f"{FAILURES}/{name}") or "{}")
                )
        return failures

    def _find(self, shard: int) -> Iterator[int]:
        for name in self._checkpoint.names_in(FAILURES):
            owner, _, batch = name.removesuffix(".json").partition("-")
            if owner == str(shard) and batch.isdigit():
                yield int(batch)

    def _remove(self, shard: int, batches: Iterable[int], needless: Callable[[int], bool]) -> None:
        for batch in batches:
            if needless(batch):
                self._checkpoint.remove(_name(shard, batch))


def _name(shard: int, batch: int) -> str:
    return f"{FAILURES}/{shard}-{batch}.json"
