"""What goes round in one slot, between the level that has sent it and level 0, which takes it.

All levels of a slot are in one process. When level 0 begins a batch, the one before is committed,
so what the instances of other levels have on their loops is committed too, if they have executed
that very batch in this epoch: of each execution the acker lets one attempt of an epoch stage.
Level 0 sends these frames down as it does any row for a deeper level, and tells the level that made
them how far it has taken them. That level forgets so much in the same batch: Spark commits both,
or neither. In a new process or epoch nothing is known of other levels, and nothing is taken; the
levels are brought back in that batch, which waits for no spout, and the next one takes what they
have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from topo.engine.spark.worker.messages import Payload
from topo.errors import EngineError
from topo.runtime.roundabout import Round
from topo.runtime.slot import SlotTasks
from topo.wire.payload import TAKEN


@dataclass
class TakenRound:
    """What level 0 takes from one level, and the message by which that level forgets it.

    Each level saves in its own execution, so until it runs it still has what was taken.
    In real-time mode a level forgets its round as it is taken: see `realtime.rounds.SavedRound`.
    """

    level: int
    committed: bytes
    """The execution that made the state which has these frames."""
    round: Round = field(default_factory=Round)

    def pack(self) -> bytes:
        """Return what the level is told, as bytes."""
        parts = (self.level, self.committed.hex(), list(self.round.upto.items()))
        return bytes([TAKEN]) + json.dumps(parts).encode()


def drop_taken(host: SlotTasks, payloads: list[Payload], committed: bytes) -> None:
    """Take out what level 0 says it has taken, and forget so much of what goes round."""
    for payload in [payload for payload in payloads if payload[0] == TAKEN]:
        payloads.remove(payload)
        level, of, upto = json.loads(bytes(memoryview(payload)[1:]))
        if of != committed.hex():
            raise EngineError(
                f"level {level} is of another commit than what level 0 has taken of its loops",
                hint="internal error; the batch is run again, please report this",
            )
        host.roundabout.drop(dict(upto))
