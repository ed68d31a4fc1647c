"""Takes messages from a subscription of Pub/Sub, and acknowledges them once they are durable.

One call to pull is always open, and its answer is looked for between batches. What a batch has
received that was rolled back is given back at once: the next instance of the task takes the client
over, which knows what is lent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_positive, load_client
from topo.connectors.formats import Decode, Format
from topo.connectors.leases import LeaseSpout
from topo.connectors.picking import Missing
from topo.connectors.pubsub.service import REQUIRES, Refusal, Service, check_access, check_name
from topo.connectors.retries import Backoff
from topo.connectors.translation import Arrival
from topo.errors import ComponentError, Unavailable
from topo.takeover import Claim, close_earlier, held_by, hold

_NAME = "PubSubSpout"
_AT_ONCE = 1_000


class Message(NamedTuple):
    """A message, its value decoded; what `translate` is given."""

    id: str
    key: str
    """The ordering key; "" if it has none."""
    attempt: int
    """How often it was delivered, if the subscription has a dead-letter policy; 0 otherwise."""
    published: datetime
    attributes: dict[str, str]
    value: Any


class Subscriber(Service):
    """A client with its open call, and the handles of what is lent to it."""

    def __init__(self, place: str, wake: Callable[[], None], **access: Any) -> None:
        super().__init__(_NAME, "Subscriber", place, **access)
        self._place, self._wake = place, wake
        self._pull: Any = None
        self.lent: set[str] = set()

    def pulled(self, most: int) -> Sequence[Any]:
        """Return what has come, without waiting, and see that a call is open."""
        messages = self._brought()
        if self._pull is None and not messages:
            request = self.types.PullRequest(
                subscription=self._place, max_messages=min(most, _AT_ONCE)
            )
            self._pull = self.start("pull", request, self._place)
            self._pull.add_done_callback(lambda _: self._wake())
        return messages

    def _brought(self) -> Sequence[Any]:
        """Return what the open call has brought, if it is done."""
        if self._pull is None or not self._pull.done():
            return ()
        call, self._pull = self._pull, None
        try:
            answer = self.result_of(call)
        except Unavailable as error:
            if type(error.__cause__).__name__ == "DeadlineExceeded":
                return ()  # none has come
            raise
        # Protobuf's own message: the client's wrapper takes half of the time of reading.
        messages: Sequence[Any] = self.types.PullResponse.pb(answer).received_messages
        self.lent.update(each.ack_id for each in messages)
        return messages

    def stop(self) -> None:
        """End the open call; what it has brought goes to others."""
        with contextlib.suppress(Unavailable, ComponentError):  # it comes again without that
            self.modify([each.ack_id for each in self._brought()], 0)
        if self._pull is not None:
            self._pull.cancel()
            self._pull = None

    def close(self) -> None:
        self.stop()
        super().close()

    def acknowledge(self, handles: Sequence[str]) -> int:
        """Acknowledge messages; return how many come again, since their time has ended."""
        expired = 0
        for part in _parts(handles):
            request = self.types.AcknowledgeRequest(subscription=self._place, ack_ids=part)
            answers = self._answers("acknowledge", request, part)
            if any(answer.startswith("TRANSIENT") for answer in answers):
                raise self.unavailable(f"some are not acknowledged: {answers[0]}")
            self.lent.difference_update(part)
            expired += len(answers)
        return expired

    def modify(self, handles: Sequence[str], secs: int) -> None:
        """Have messages lent for some seconds from now on; 0 gives them back."""
        for part in _parts(handles):
            request = self.types.ModifyAckDeadlineRequest(
                subscription=self._place, ack_ids=part, ack_deadline_seconds=secs
            )
            self._answers("modify_ack_deadline", request, part)  # what has expired comes again
            if not secs:
                self.lent.difference_update(part)

    def _answers(self, call: str, request: Any, handles: Sequence[str]) -> list[str]:
        """Make a call; return what is said of the handles that it was not done for.

        Only subscriptions with exactly-once delivery say that.
        """
        try:
            self.result_of(self.start(call, request, self._place))
        except Refusal as refusal:
            answers = [refusal.by_handle[each] for each in handles if each in refusal.by_handle]
            if not answers:
                raise
            return answers
        return []


class PubSubSpout(LeaseSpout):
    """A spout of a subscription: (id, key, attempt, published, attributes, value).

    Several tasks share it. `fields` names some of these parts, or those of a JSON value;
    `translate` is given a Message. A message that is not acknowledged within `lease_secs` comes
    again; the time is extended until it is done with.

    Messages are tracked if there are ackers, unless `track=False`: one that fails is emitted again
    after a pause, `retry`. After its `retries` it goes to the stream `dead`; if nobody reads that,
    it is given back to the subscription, whose dead-letter policy may bury it.

    `emulator` is a host and a port, by default PUBSUB_EMULATOR_HOST's; `endpoint` those of a
    region. `credentials` is the path of a service account's key, or a Secret with the key itself;
    without them the client looks for them as it always does.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient = (*LeaseSpout.transient, "_service", "_claim")
    poll_secs = 0.0  # a call is open, and wakes the task

    @answering({"ack_deadline_secs": "lease_secs", "max_messages": "max_in_flight"})
    def __init__(
        self,
        subscription: str,
        *,
        value: str | Format | Decode = "json",
        fields: str | Iterable[str] = (),
        translate: Callable[[Message], Any] | None = None,
        streams: Mapping[str, str | Iterable[str]] | None = None,
        lease_secs: int = 60,
        max_in_flight: int = 1_000,
        emulator: str | None = None,
        endpoint: str | None = None,
        credentials: str | Secret | None = None,
        missing: Missing = "null",
        on_bad: OnBad = "stop",
        track: bool | None = None,
        retry: Backoff | None = None,
    ) -> None:
        check_name(_NAME, "subscription", subscription)
        check_access(_NAME, emulator, endpoint, credentials)
        check_positive(_NAME, max_in_flight=max_in_flight)
        if not (isinstance(lease_secs, int) and 10 <= lease_secs <= 600):
            raise ComponentError(f"{_NAME}: lease_secs={lease_secs!r}; Pub/Sub has 10 to 600")
        self.subscription, self.lease_secs = subscription, lease_secs
        self.max_in_flight = max_in_flight
        self.emulator, self.endpoint, self.credentials = emulator, endpoint, credentials
        self.set_up_reading(
            Message,
            Message._fields,
            track=track,
            retry=retry,
            value=value,
            fields=fields,
            translate=translate,
            streams=streams,
            missing=missing,
            on_bad=on_bad,
        )

    # -- life ---------------------------------------------------------------------------------

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        load_client("google.pubsub_v1", _NAME, "pubsub")
        super().open(conf, context, collector)
        self._service: Subscriber | None = None

    def restored(self) -> None:
        """Give back what an earlier instance has received in a batch that was rolled back."""
        super().restored()
        earlier = held_by(self.context)
        if not isinstance(earlier, Subscriber):
            return
        self._service = earlier
        self._claim: Claim = hold(self.context, earlier)
        done = self.state.raw().get(self.context.this_task_index, ())
        self.give_back([*earlier.lent.difference(self._open, done)])

    def close(self) -> None:
        self._service = None
        close_earlier(self.context)

    def deactivate(self) -> None:
        """Leave what comes to others."""
        if self._service is not None:
            self._service.stop()

    def _linked(self) -> Subscriber:
        if self._service is None:
            close_earlier(self.context)
            self._service = Subscriber(
                self.subscription,
                self.context.wake,
                emulator=self.emulator,
                endpoint=self.endpoint,
                credentials=self.credentials,
            )
            self._claim = hold(self.context, self._service)
        return self._service

    # -- messages -----------------------------------------------------------------------------

    def fetch(self, most: int) -> Sequence[Arrival]:
        received = self._linked().pulled(most)
        # What is pulled is lent for as long as the subscription says, by default for 10 seconds.
        with contextlib.suppress(Unavailable):  # what has come is not thrown away for that
            self.extend([each.ack_id for each in received])
        return [self._arrival(each) for each in received]

    def _arrival(self, received: Any) -> Arrival:
        message = received.message

        def record(value: Any) -> Message:
            return Message(
                message.message_id,
                message.ordering_key,
                received.delivery_attempt,
                message.publish_time.ToDatetime(UTC),
                dict(message.attributes),
                value,
            )

        where = f"{self.subscription} {message.message_id}"
        return Arrival(message.data, record, where, received.ack_id)

    def extend(self, handles: Sequence[str]) -> None:
        self._linked().modify(handles, int(self.lease_secs))

    def give_back(self, handles: Sequence[str]) -> None:
        self._linked().modify(handles, 0)

    def delete(self, handles: Sequence[str]) -> None:
        expired = self._linked().acknowledge(handles)
        if expired:
            self.context.counter("expired", expired)


def _parts(handles: Sequence[str]) -> list[Sequence[str]]:
    return [handles[start : start + _AT_ONCE] for start in range(0, len(handles), _AT_ONCE)]
