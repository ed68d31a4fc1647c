"""The transport to ackers of the same process, for which gRPC would take a millisecond a call.

A driver looks at its own ackers up to twenty times a second. The calls are those of everybody else,
with their checks; what fails without a word of its own is an acker's failure here too.

If another call is in work, a call waits for its turn, as over gRPC no longer than its time-out: a
slot's call may write failures to a checkpoint whose file system does not answer, and the driver has
to notice that, and not to stand still with it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from topo.tracking.refusals import Refused
from topo.tracking.service import AckerService, Occupied
from topo.tracking.transport import AckerFailed, AckerTarget, Unreachable, metadata_of

_LOG = logging.getLogger("topo.tracking")


class DirectTransport:
    """Calls to services that are here, each answered when it is started; any thread may call it."""

    def __init__(self, target: AckerTarget, services: Sequence[AckerService]) -> None:
        self._services = services
        self._metadata = dict(metadata_of(target))

    def start(self, shard: int, method: str, request: bytes, timeout: float) -> Answer:
        """Make a call, which waits for no longer than its time-out until it has its turn."""
        try:
            return Answer(self._services[shard].handle(method, request, self._metadata, timeout))
        except Refused as refused:
            return Answer(refused)
        except Occupied as occupied:
            return Answer(Unreachable(str(occupied)))
        except Exception as error:
            _LOG.exception("%s failed", method)
            return Answer(AckerFailed(f"internal: {type(error).__name__}, in this process"))


@dataclass(frozen=True)
class Answer:
    """The reply to a call, or what is raised in its place."""

    reply: bytes | Exception

    def result(self) -> bytes:
        """Return the reply."""
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply
