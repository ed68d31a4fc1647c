"""Spouts of messages that a broker keeps until they are acked: MQTT's, AMQP's.

The broker gives messages, and hears that they are done only once that is durable: after the commit
of the batch that emitted them, or, if they are tracked, after their tuple trees. A crash before
that leaves them with the broker, which delivers them again. Nothing of it is in topo's state: the
broker's own books decide, so that neither can contradict the other.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from topo.components import Spout
from topo.connectors.base import check_guarantee
from topo.connectors.brokers import BrokerAccess
from topo.connectors.formats import requirements_of
from topo.connectors.inflight import dead_fields, is_tracked
from topo.connectors.retries import Backoff, Retries
from topo.connectors.translation import Arrival, Page, Reading, Translation, stream_and_values
from topo.errors import ComponentError
from topo.takeover import Claim, Shared, close_earlier, held_by, hold, let_go

_MOST = 1_000  # messages a call of next_tuple


@dataclass(slots=True, eq=False)
class Delivery:
    """One message, as the broker gave it."""

    tag: Hashable
    """Its name until it is acked, by which it is known if it comes again; None: nobody keeps it."""
    raw: bytes
    record: Callable[[Any], Any]
    """Makes its record of the decoded value."""
    where: str
    is_again: bool
    """True if the broker says that it may have delivered it before."""
    link: Link
    """The connection that it came by last: only there can it be acked."""
    failures: int = 0
    number: int = 0
    """What its connection calls it."""
    batch: int = -1
    """The batch whose commit makes it durable; -1 if it is."""


class Link(Shared):
    """A connection to a broker that delivers."""

    def __init__(self) -> None:
        self.session: Hashable = None
        """What tags are valid in; None while nothing is known of it."""
        self.settling: list[Delivery] = []
        """What is to be acked by it once it is durable; here for the instance that comes next."""

    @property
    def is_ready(self) -> bool:
        """True once the broker delivers what comes from now on."""
        raise NotImplementedError

    def take(self, most: int) -> Sequence[Delivery]:
        """Return what has arrived, without waiting; raise once the connection is lost."""
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Answer the broker while nothing is taken; `take` raises what went wrong."""

    def ack(self, deliveries: Sequence[Delivery]) -> bool:
        """Tell the broker that messages are done; return False if the connection is lost."""
        raise NotImplementedError

    def refuse(self, delivery: Delivery) -> None:
        """Tell the broker to bury a message, or to forget it."""
        raise NotImplementedError

    def ack_up_to(self, batch: int) -> list[Delivery]:
        """Ack what is durable after this batch; return it, or nothing if that was not possible."""
        done = [one for one in self.settling if one.batch <= batch]
        if not done or not self.ack(done):
            return []
        self.settling = [one for one in self.settling if one.batch > batch]
        return done


class DeliverySpout(BrokerAccess, Spout):
    """A spout of what a broker delivers.

    With `guarantee="at_least_once"` a message is acked when its batch has committed. If it is
    tracked, by default if there are ackers, it is acked when its tuple tree is, and one that fails
    is emitted again after a pause, `retry`. With "none" the broker forgets it when it is delivered.
    """

    connector = ""
    refused: Mapping[str, str] = {}
    """Guarantees that are not to be had, with the reasons and the remedies."""
    transient: Iterable[str] = (
        "_link",
        "_reader",
        "_held",
        "_missing",
        "_settled",
        "_claim",
        "_open",
        "_retries",
        "_serial",
        "_session",
        "_shown",
        "_nonce",
        "_is_tracked",
    )

    def set_up(
        self,
        record: type[Any],
        default: tuple[str, ...],
        *,
        guarantee: str,
        track: bool | None,
        retry: Backoff | None,
        most_held: int,
        **reading: Unpack[Reading],
    ) -> None:
        """Check and keep what every such spout has; called by the constructor."""
        check_guarantee(self.connector, guarantee, ("at_least_once", "none"), self.refused)
        if track and guarantee == "none":
            raise ComponentError(
                f"{self.connector}: track=True with guarantee='none': the broker has forgotten "
                "what would have to come again"
            )
        self.guarantee, self.track, self.retry = guarantee, track, retry or Backoff()
        self.most_held = most_held
        self.requires = (*self.requires, *requirements_of(reading["value"]))
        self.translation = Translation(
            self.connector, record, default, dead=dead_fields(self.retry), **reading
        )
        self.outputs: Any = self.translation.outputs

    def connect(self) -> Link:
        """Begin to connect; what fails is raised by the link's `take`."""
        raise NotImplementedError

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        tracked = is_tracked(self.connector, self.track, conf)
        self._is_tracked = tracked and self.guarantee != "none"
        self._reader = self.translation.reader(self)
        self._link: Link | None = None
        self._held: dict[Hashable, Delivery] = {}  # what the broker holds for this instance
        self._missing: set[Hashable] = set()  # of those, what has not come by this connection
        self._settled: dict[Hashable, Delivery] = {}  # of those, what is to be acked when it has
        self._open: dict[int, Delivery] = {}  # tracked
        self._retries: Retries[str] = Retries(self.retry, context.now)
        self._serial = 0
        self._session: Hashable = None
        self._shown: Link | None = None  # the one that is shown as connected
        self._nonce = secrets.token_hex(8)  # messages of an earlier instance are others

    def close(self) -> None:
        self._link = None
        close_earlier(self.context)

    def _let_go(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            let_go(self.context, link)

    def _linked(self) -> Link:
        if self._link is None:
            close_earlier(self.context)
            self._link = self.connect()
            self._missing = set(self._held)
            on_their_way = {id(one) for one in self._open.values()}
            self._settled = {
                tag: one for tag, one in self._held.items() if id(one) not in on_their_way
            }
            self._claim: Claim = hold(self.context, self._link)
        return self._link

    # -- messages -----------------------------------------------------------------------------

    def next_tuple(self) -> None:
        if len(self._retries) and self._emit_again():
            return
        try:
            link = self._linked()
            room = self.most_held - len(self._held) + len(self._missing)
            most = self.room(_MOST) if self._is_tracked else _MOST
            deliveries = link.take(max(0, min(most, room)))
            if link.is_ready and self._shown is not link:
                self._shown = link
                self.context.end_batch()  # or `connected` would be shown with the next message
            if link.session is not None and link.session != self._session:
                self._forget_session(link.session)
            if deliveries:
                self.context.counter("received", len(deliveries))
                self._emit_all(deliveries)
        except BaseException:
            self._let_go()
            raise

    def keep_alive(self) -> None:
        if self._link is not None:
            self._link.keep_alive()

    def _forget_session(self, session: Hashable) -> None:
        """Forget what the broker holds no longer, or will deliver under other tags."""
        self._session = session
        self._held.clear()
        self._missing.clear()
        self._settled.clear()

    def _emit_all(self, deliveries: Sequence[Delivery]) -> None:
        page = Page()
        again: list[Delivery] = []
        try:
            self._reader.read_page(self, self._arrivals(deliveries, again), page, self._emit_other)
        finally:
            settled = sum([self._settle(delivery) for delivery in page.done])
            ids = [self._id_of(delivery) for delivery in page.tags]
            if page.rows:
                self.emit_many(page.rows, msg_ids=ids if self._is_tracked else None)
            elif settled or again:
                self.context.end_batch()  # or nothing would be acked until something is emitted

    def _arrivals(self, deliveries: Sequence[Delivery], again: list[Delivery]) -> Iterator[Arrival]:
        """Yield what is to be read, and hold what was; add to `again` what is on its way."""
        for delivery in deliveries:
            if delivery.is_again and delivery.tag is not None and delivery.tag in self._held:
                self._found_again(delivery)
                again.append(delivery)
                continue
            yield Arrival(delivery.raw, delivery.record, delivery.where, delivery)
            self._hold(delivery)

    def _hold(self, delivery: Delivery) -> None:
        """Know a message that was read, and that the broker keeps until it is acked."""
        if self.guarantee != "none" and delivery.tag is not None:
            self._held[delivery.tag] = delivery

    def _emit_other(self, stream: str, values: Any, arrival: Arrival) -> None:
        self._hold(arrival.tag)  # before it is settled
        self.emit(values, stream=stream, msg_id=self._id_of(arrival.tag))

    def _id_of(self, delivery: Any) -> tuple[str, int] | None:
        """Return the id to emit a message under; have it acked with its batch if it has none."""
        if self._is_tracked:
            return self._track(delivery)
        self._settle(delivery)
        return None

    def _found_again(self, delivery: Delivery) -> None:
        """Take a message for the one on its way: only the connection was lost meanwhile."""
        known = self._held[delivery.tag]
        known.link = delivery.link
        self._missing.discard(delivery.tag)
        if self._settled.pop(delivery.tag, None):
            known.link.settling.append(known)

    def _read(self, delivery: Delivery) -> Any:
        return self._reader.read(self, delivery.raw, delivery.record, delivery.where)

    def _settle(self, delivery: Delivery) -> bool:
        """Have a message acked when the batch in work has committed."""
        if self._held.get(delivery.tag) is not delivery:
            return False  # the broker keeps it no longer
        delivery.batch = self.context.batch_id
        if delivery.link is self._link:
            delivery.link.settling.append(delivery)
        else:
            self._settled[delivery.tag] = delivery
        return True

    def _track(self, delivery: Delivery) -> tuple[str, int]:
        self._serial += 1
        self._open[self._serial] = delivery
        return self._nonce, self._serial

    # -- what becomes of them -----------------------------------------------------------------

    def ack(self, msg_id: Any) -> None:
        delivery = self._found(msg_id)
        if delivery is not None:
            self._retries.forget("", msg_id[1])
            del self._open[msg_id[1]]
            if self._settle(delivery):
                delivery.batch = -1  # its tree is committed

    def fail(self, msg_id: Any, reason: str = "") -> None:
        delivery = self._found(msg_id)
        if delivery is None:
            return
        serial = msg_id[1]
        delivery.failures += 1
        self._retries.fail("", serial)
        if self.retry.gives_up(delivery.failures):
            self._give_up(serial, delivery, reason)
        else:
            self._retries.schedule("", serial)

    def _found(self, msg_id: Any) -> Delivery | None:
        nonce, serial = msg_id
        return self._open.get(serial) if nonce == self._nonce else None

    def _give_up(self, serial: int, delivery: Delivery, reason: str) -> None:
        """Tell of a message that failed too often, and have the broker bury it."""
        self._retries.forget("", serial)
        del self._open[serial]
        self.context.counter("dead")
        if self.context.this_targets.get("dead"):
            told = [delivery.raw, delivery.where, reason, delivery.failures]
            self.emit(told, stream="dead")
            self._settle(delivery)
            return
        self.report_error(
            f"{delivery.where}: a message failed {delivery.failures} times, and is given up; "
            f"the last time: {reason}"
        )
        is_held = self._held.pop(delivery.tag, None) is not None
        if is_held and self._link is delivery.link:
            delivery.link.refuse(delivery)

    def _emit_again(self) -> bool:
        """Emit failed messages whose pause is over; return False if there were none."""
        ready = self._retries.ready().get("", [])
        for serial in ready[: self.room(_MOST)]:
            self._retries.remove("", serial)
            delivery = self._open[serial]
            made = self._read(delivery)
            if made is None:
                del self._open[serial]
                self._settle(delivery)
                continue
            stream, values = stream_and_values(made)
            self.context.counter("replayed")
            self.emit(values, stream=stream, msg_id=(self._nonce, serial))
        return bool(ready)

    # -- the end of a batch -------------------------------------------------------------------

    def pre_commit(self, batch_id: int) -> None:
        """Ack what is durable already, and show how much the broker holds for this task."""
        self._ack_up_to(-1)
        self.context.gauge("unacked", len(self._held))
        self.context.gauge("connected", int(self._link is not None and self._link.is_ready))

    def committed(self, batch_id: int) -> None:
        """Ack what the batch has emitted, by the connection of an earlier instance if need be."""
        if self._link is not None:
            self._ack_up_to(batch_id)
            return
        earlier = held_by(self.context)
        if isinstance(earlier, Link):
            self._count(earlier.ack_up_to(batch_id))

    def _ack_up_to(self, batch: int) -> None:
        if self._link is None:
            return
        done = self._link.ack_up_to(batch)
        for delivery in done:
            self._held.pop(delivery.tag, None)
        self._count(done)

    def _count(self, acked: Sequence[Delivery]) -> None:
        if acked:
            self.context.counter("acked", len(acked))
