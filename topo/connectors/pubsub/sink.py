"""Publishes tuples to topics of Pub/Sub: at least once, which is all that it has.

Messages of one ordering key have requests of their own, as Pub/Sub wants it: one at a time, and
those of several keys at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from topo.config.secrets import Secret
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, load_client
from topo.connectors.formats import Encode, Format, check_form, encoder, requirements_of
from topo.connectors.outbox import Chosen, OutboxSink, Outgoing, Refused, chosen, parts
from topo.connectors.pubsub.service import REQUIRES, Refusal, Service, check_access, check_name
from topo.errors import Unavailable
from topo.takeover import Claim, close_earlier, hold
from topo.tuples import Tuple

_NAME = "PubSubBolt"
_MOST, _MOST_BYTES = 1_000, 9_000_000  # of a request; Pub/Sub has 10 MB
_REQUESTS = 32  # that are open at once
_ID = "topo_id"


class _More(NamedTuple):
    """What a message has besides its value."""

    key: str
    attributes: dict[str, str]


class PubSubBolt(OutboxSink):
    """A sink of messages.

    `topic` is a whole name, or a function of the tuple; one that returns None skips it. The value
    is a dict of the tuple's fields, or what `map` makes of the tuple, encoded by `value`. `key`,
    the ordering key, and `attributes`, a dict of texts, are a field's name or a function of the
    tuple. With `after_commit` messages have the attribute `topo_id`, which is the same if one is
    published twice. For `emulator`, `endpoint` and `credentials` see `PubSubSpout`.
    """

    requires: Iterable[str] = (REQUIRES,)
    connector = _NAME
    transient: Iterable[str] = ("_encode", "_service", "_claim", *OutboxSink.transient)
    refused = {
        "exactly_once": "Pub/Sub has no marker that it would compare; use after_commit=True, and "
        "drop at the consumer the topo_ids that it knows",
        "by_batch": "Pub/Sub replaces nothing that was published; use 'at_least_once'",
    }

    @answering({"ordering_key": "key", "topic_path": "topic"})
    def __init__(
        self,
        topic: str | Callable[[Tuple], str | None],
        *,
        key: Chosen | None = None,
        attributes: Chosen | None = None,
        value: str | Format | Encode = "json",
        map: Callable[[Tuple], Any] | None = None,
        guarantee: str = "at_least_once",
        after_commit: bool = False,
        emulator: str | None = None,
        endpoint: str | None = None,
        credentials: str | Secret | None = None,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
    ) -> None:
        if not callable(topic):
            check_name(_NAME, "topic", topic)
        check_access(_NAME, emulator, endpoint, credentials)
        check_form(value, _NAME, "value", writes=True)
        self.requires = (*self.requires, *requirements_of(value))
        self.topic, self.key, self.attributes, self.value = topic, key, attributes, value
        self.emulator, self.endpoint, self.credentials = emulator, endpoint, credentials
        self.set_up(
            guarantee=guarantee,
            after_commit=after_commit,
            map=map,
            on_bad=on_bad,
            retry_secs=retry_secs,
        )

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        load_client("google.pubsub_v1", _NAME, "pubsub")
        self._encode = encoder(self.value, _NAME, "value")
        self._service: Service | None = None

    def cleanup(self) -> None:
        close_earlier(self.context)

    def _linked(self) -> Service:
        if self._service is None:
            close_earlier(self.context)
            about = self.topic if isinstance(self.topic, str) else "topics of tuples"
            self._service = Service(
                _NAME,
                "Publisher",
                about,
                emulator=self.emulator,
                endpoint=self.endpoint,
                credentials=self.credentials,
            )
            self._claim: Claim = hold(self.context, self._service)
        return self._service

    def outgoing(self, tup: Tuple) -> Outgoing | None:
        topic = self.topic if isinstance(self.topic, str) else self.topic(tup)
        if topic is None:
            return None
        if not isinstance(self.topic, str):
            check_name(_NAME, "topic", topic)
        key = chosen(self.key, tup)
        attributes = dict(chosen(self.attributes, tup) or {})
        if not all(isinstance(text, str) for pair in attributes.items() for text in pair):
            raise ValueError(f"attributes are texts by name; got {attributes!r}"[:200])
        body = self._encode(self.as_record(tup))
        if not body and not attributes:
            raise ValueError("a message without a value and without attributes")
        record = Outgoing(topic, body, _More("" if key is None else str(key), attributes))
        if _size(record) > _MOST_BYTES:
            raise ValueError(f"a message of {_size(record):,} bytes; {_MOST_BYTES:,} are the most")
        return record

    # -- sending ------------------------------------------------------------------------------

    def send(self, records: Sequence[Outgoing]) -> Refused:
        refused: Refused = []
        left = dict(enumerate(records))
        self.deliver(partial(self._publish, left, refused), left)
        return refused

    def _publish(self, left: dict[int, Outgoing], refused: Refused) -> None:
        """Publish what is left, in its order for each key; take out what is done or refused."""
        service = self._linked()
        while left:
            lines: dict[tuple[str, str], list[int]] = defaultdict(list)
            for place, record in left.items():
                lines[record.where, record.more.key].append(place)
            size = partial(_size_in, left)
            firsts = [
                next(parts(line, size, most=_MOST, most_bytes=_MOST_BYTES))
                for line in islice(lines.values(), _REQUESTS)
            ]
            calls = [self._start(service, left, places) for places in firsts]
            away: Unavailable | None = None
            for places, call in zip(firsts, calls, strict=True):
                try:
                    self._finish(service, left, places, call, refused)
                except Unavailable as error:
                    away = error
            if away is not None:
                raise Unavailable(f"{away.message}; {len(left)} messages are not published")

    def _finish(
        self,
        service: Service,
        left: dict[int, Outgoing],
        places: list[int],
        call: Any,
        refused: Refused,
    ) -> None:
        """Wait for a request, and take out of what is left what it has settled.

        One that is refused is halved, until those alone are that do not fit.
        """
        try:
            service.result_of(call)
        except Refusal as refusal:
            if not refusal.is_about_records:
                raise
            if len(places) > 1:
                middle = len(places) // 2
                for half in (places[:middle], places[middle:]):
                    again = self._start(service, left, half)
                    self._finish(service, left, half, again, refused)
                return
            refused.append((left[places[0]], ValueError(refusal.message)))
        for place in places:
            del left[place]

    def _start(self, service: Service, left: Mapping[int, Outgoing], places: list[int]) -> Any:
        types = service.types
        part = [left[place] for place in places]
        messages = [
            types.PubsubMessage(
                data=record.body,
                ordering_key=record.more.key,
                attributes={**record.more.attributes, **self._own(record)},
            )
            for record in part
        ]
        topic = part[0].where
        return service.start("publish", types.PublishRequest(topic=topic, messages=messages), topic)

    def _own(self, record: Outgoing) -> dict[str, str]:
        return {_ID: record.id} if self.after_commit else {}


def _size(record: Outgoing) -> int:
    more: _More = record.more
    texts = sum(len(name.encode()) + len(text.encode()) for name, text in more.attributes.items())
    return len(record.body) + len(more.key.encode()) + texts + 200


def _size_in(left: Mapping[int, Outgoing], place: int) -> int:
    return _size(left[place])
