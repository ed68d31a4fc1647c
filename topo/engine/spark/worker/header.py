"""The header of a batch: a payload that a slot sends to itself at every level.

So every slot is called in every batch, with one number and one clock for all of it.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from topo.engine.spark.worker.messages import Payload
from topo.errors import EngineError
from topo.runtime.slot import Batch
from topo.tracking.plan import Mode
from topo.wire.payload import HEADER


@dataclass(frozen=True)
class BatchHeader:
    """The batch's facts for the levels of a slot."""

    batch: Batch
    mode: Mode

    def pack(self) -> bytes:
        batch = self.batch
        fields = (batch.id, batch.now, batch.before, int(self.mode))
        return bytes([HEADER]) + pickle.dumps(fields)

    @classmethod
    def find(cls, payloads: list[Payload]) -> BatchHeader:
        """Remove the header from the payloads and return it."""
        for index, payload in enumerate(payloads):
            if payload[0] == HEADER:
                number, now, before, mode = pickle.loads(memoryview(payload)[1:])
                del payloads[index]
                return cls(Batch(number, now, before), Mode(mode))
        raise EngineError(
            "internal error: a level was run without the batch's header", hint="please report this"
        )
