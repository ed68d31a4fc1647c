"""`DrpcSpout`: the requests of one function as a stream.

A request is emitted twice: with its arguments, and on the stream `requests` as an announcement, by
which bolts that gather its tuples hear that there is one, though they may get none. Both are
messages of their own; the server hears of both trees.

What was emitted is known by the serial of the last request, which is saved with the batch. An
instance that is rebuilt attaches with it, so that requests of a batch that was rolled back come
again, and those of a committed batch do not.

What was told as done is settled when the batch in which it was told has committed: every slot has
worked in that batch, and has brought the answers of those before. Of an instance that is rebuilt it
is the first batch of its own, and what its predecessor had settled, which it does not know, is so
with that: what died with the predecessor may have had the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topo.components import Spout
from topo.context import TopologyContext
from topo.drpc.calls import SETTLED
from topo.drpc.desk import PARTS, Line
from topo.drpc.places import FUNCTION, lines_of
from topo.errors import ComponentError, shown
from topo.takeover import Belongings, Claim, close_earlier, hold

REQUESTS = "requests"
ID = "id"
_MOST = 1_000
_MOST_NAME = 200


class DrpcSpout(Spout):
    """A spout of the calls of one function, as ("args", "return_info").

    What a bolt makes of a request goes to `ReturnResults`, with its `return_info`.
    """

    _topo_role = "drpc"

    outputs: Any = {"default": ("args", "return_info"), REQUESTS: (ID,)}
    transient: Iterable[str] = ("_lines", "_claim", "_is_rebuilt", "_settles_anew")

    def __init__(self, function: str) -> None:
        if not isinstance(function, str) or not function or len(function) > _MOST_NAME:
            raise ComponentError(
                f"DrpcSpout takes the name of a function; got {shown(function)}",
                hint='write DrpcSpout("reach")',
            )
        self.function = function

    def get_component_configuration(self) -> Mapping[str, Any]:
        return {FUNCTION: self.function}

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        if not conf["topology.acker.executors"]:
            raise ComponentError(
                f"DrpcSpout({self.function!r}) needs ackers: callers would not hear of failures, "
                "and would wait for the end of idle batches",
                hint="set topology.acker.executors to 1",
                code="drpc-tracking",
            )
        self.taken: dict[str, int] = {}
        """By server, the serial of the last request that was emitted."""
        self._lines: list[Line] | None = None
        self.unsettled: list[tuple[int, str]] = []
        """The requests that were told as done, with the batch of that."""
        self._is_rebuilt = self._settles_anew = False
        self._parts = PARTS if context.this_targets.get(REQUESTS) else PARTS[:1]

    def close(self) -> None:
        close_earlier(self.context)
        self._lines = None

    def deactivate(self) -> None:
        for line in self._lines or ():
            line.grant(0)

    def next_tuple(self) -> None:
        if self._settles_anew:
            self.context.end_batch()  # an idle one lasts a minute
        for line in self._opened():
            line.grant(self.room(_MOST * len(self._parts)) // len(self._parts))
            for request in line.take():
                self.taken[line.number] = request.serial
                args, *announced = self._parts
                self.emit([request.args, request.id], msg_id=(args, request.id))
                for part in announced:
                    self.emit([request.id], stream=REQUESTS, msg_id=(part, request.id))

    def _opened(self) -> list[Line]:
        """Return the lines to all servers: an instance that is rebuilt hears of ends first."""
        if self._lines is None:
            gathers = len(self._parts) > 1
            close_earlier(self.context)
            self._lines = lines_of(self.context, self.function, self.taken, gathers)
            opened = Belongings()
            for line in self._lines:
                opened.add(line.close)
            self._claim: Claim = hold(self.context, opened)
        return self._lines

    def ack(self, msg_id: Any) -> None:
        part, id = msg_id
        self.unsettled.append((self.context.batch_id, id))
        for line in self._lines_of(id):
            line.done(id, part, (*self._parts, SETTLED))

    def restored(self) -> None:
        self._is_rebuilt = self._settles_anew = True

    def committed(self, batch_id: int) -> None:
        if self._is_rebuilt:  # it hears of its predecessor's last batch
            self._is_rebuilt = False
            return
        if self._settles_anew:
            self._settles_anew = False
            for line in self._opened():
                line.settle_anew()
        settled = [id for batch, id in self.unsettled if batch <= batch_id]
        if settled:
            self.unsettled = [(batch, id) for batch, id in self.unsettled if batch > batch_id]
        for id in settled:
            for line in self._lines_of(id):
                line.done(id, SETTLED, (*self._parts, SETTLED))

    def fail(self, msg_id: Any, reason: str = "") -> None:
        _, id = msg_id
        for line in self._lines_of(id):
            line.fail(id, reason)

    def _lines_of(self, id: str) -> Iterable[Line]:
        """Return the line to the request's server, if that is still the same one.

        Servers that have not said yet who they are hear of it too, and pass over others' requests.
        """
        numbers = (id.partition(".")[0], "")
        return [line for line in self._opened() if line.number in numbers]
