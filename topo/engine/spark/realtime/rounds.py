"""What goes round in one slot of real-time mode, between the level that made it and level 0.

What a level has sent over loops in an epoch is saved with that epoch. The next one is cut only once
this is committed, and a slot hears of the commit before it hears of the cut. So when it hears of
it, all of its levels are in the next epoch, and none has ended that one. Level 0 then sends such
frames down, and the level that made them forgets them: what executes them and what deletes them are
of one record of the log, and no number has to say how far anybody is. A start finds in the log what
was committed and not executed, and sends it down first.

All levels of the slot have to be in one process for that, as they are on one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from topo.engine.spark.realtime.output import Output
from topo.errors import EngineError
from topo.runtime.roundabout import Round, Roundabout


class SavedRound:
    """What the last saved epoch of a level has left on its loops.

    What is there when the object is made was committed before.
    """

    def __init__(self, roundabout: Roundabout) -> None:
        self._roundabout = roundabout
        self.note_saved()

    def note_saved(self) -> None:
        """Remember what the epoch that was saved now leaves to the next one."""
        self._saved = self._roundabout.waiting()

    def take(self) -> Round:
        """Return what the last epoch has left, and forget it: the present one executes it."""
        lap, self._saved = self._saved, Round()
        self._roundabout.drop(lap.upto)
        return lap


class Lapping(Protocol):
    """A level of a slot, of which level 0 takes what goes round."""

    number: int
    epoch: int
    output: Output
    saved_round: SavedRound | None


def send_round(levels: Mapping[int, Lapping]) -> int:
    """Let level 0 of a slot send down what goes round; return its bytes.

    The last epoch is committed, and no level has ended the one after it.
    """
    nbytes = 0
    for level in levels.values():
        if level.saved_round is None:
            continue
        if level.epoch != levels[0].epoch:
            raise EngineError(
                f"level {level.number} is in epoch {level.epoch}, and what it has on loops would "
                f"be executed in epoch {levels[0].epoch}",
                hint="internal error; the run starts again from its last epoch, please report this",
            )
        lap = level.saved_round.take()
        for frame in lap.frames:
            levels[0].output.add(frame)
        nbytes += lap.nbytes
    return nbytes
