"""The worker's end of a relay: it sends work to the slot process and receives the outcome."""

from __future__ import annotations

import contextlib
import pickle
import time

from topo.config import Config
from topo.engine.spark.process.doing import last_words
from topo.engine.spark.worker.messages import Abandoned, Outcome, Restore, Work
from topo.engine.spark.worker.relay import (
    DONE,
    FAILED,
    NEED_STATE,
    RESTORE,
    WORK,
    Relay,
    RelayLost,
    SlotDied,
)
from topo.errors import EngineError

HANG_SECS = Config.hang_secs.key


class RemoteRunner:
    """A proxy of the runner in the slot process at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def execute(self, work: Work, restore: Restore, abandoned: Abandoned) -> Outcome:
        since = time.time()
        try:
            return self._execute(work, restore)
        except RelayLost as lost:
            words = last_words(self._path, since)
            if not words:
                raise
            text = f"{words}, in batch {work.batch}"
            if "SIGKILL" in words:
                hint = "by the kernel, if memory is short (its log says so), or by somebody"
                raise RelayLost(text, hint=hint) from lost
            hint = "its own code, or a library that it calls, ended the process"
            if HANG_SECS in words:
                hint = f"give what it waits for a timeout of its own, or raise {HANG_SECS}"
            raise SlotDied(text, hint=hint) from lost

    def _execute(self, work: Work, restore: Restore) -> Outcome:
        with contextlib.closing(Relay.connect(self._path)) as relay:
            head = (work.lease, work.batch, work.level, work.slot, work.committed)
            relay.send(WORK, head, work.payloads)
            while True:
                kind, head, parts = relay.receive()
                if kind == NEED_STATE:
                    records = restore()
                    relay.send(RESTORE, list(records), list(records.values()))
                elif kind == FAILED:
                    raise pickle.loads(head)
                elif kind == DONE:
                    targets, keys, removes = head
                    sends = zip(targets, parts, strict=False)
                    return Outcome(
                        [(slot, level, payload) for (slot, level), payload in sends],
                        list(zip(keys, parts[len(targets) :], strict=True)),
                        removes,
                    )
                else:
                    raise EngineError(f"the slot process sent a message of kind {kind}")
