"""Posts tuples to a URL.

Each request has an Idempotency-Key, which is the same if the same is sent again. `exactly_once`
keeps the requests of a batch in state, and sends them once the batch has committed: a server that
takes a key once has each record once, and nothing of an attempt that was rolled back.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from topo.config.secrets import Secret
from topo.connectors.addresses import check_url
from topo.connectors.arguments import answering
from topo.connectors.base import OnBad, check_choice, check_positive
from topo.connectors.formats import Encode, Format, check_form, encoder, requirements_of
from topo.connectors.http.client import SCHEMES, Target, retry_after
from topo.connectors.http.server import MOST_KEY
from topo.connectors.http.targets import TargetSink
from topo.connectors.outbox import Outgoing, Refused
from topo.connectors.remote import passes
from topo.errors import ComponentError, Unavailable
from topo.tuples import Tuple

_NAME = "HttpBolt"
_FIRST_PAUSE_SECS = 0.1
_LONGEST_PAUSE_SECS = 5.0
_KEY_CHARACTERS = "".join(chr(n) for n in range(0x20, 0x7F) if chr(n) != "%")
"""What a header carries as it is; a component's name may have more."""
_TYPES = {"json": "application/json", "str": "text/plain; charset=utf-8",
          "bytes": "application/octet-stream", "msgpack": "application/vnd.msgpack"}  # fmt: skip


class HttpBolt(TargetSink):
    """A sink that posts a request for each tuple.

    A body is a dict of the tuple's fields, or what `map` makes of the tuple, encoded by `value`.
    `url` may be a function of the tuple; one that returns None skips it. `concurrency` is how many
    requests a task has under way; with more than one their order is not kept.

    An answer of 408, 425, 429 or 5xx is asked again, when its Retry-After says so; another 4xx
    rejects the tuple.
    """

    transient = ("_threads", "_encode", *TargetSink.transient)
    connector = _NAME
    refused = {
        "by_batch": "a server replaces nothing that was posted; use 'exactly_once' with a server "
        "that takes an Idempotency-Key once",
    }

    @answering()
    def __init__(
        self,
        url: str | Secret | Callable[[Tuple], str | None],
        *,
        method: str = "POST",
        headers: Mapping[str, str | Secret] | None = None,
        value: str | Format | Encode = "json",
        map: Callable[[Tuple], Any] | None = None,
        content_type: str | None = None,
        concurrency: int = 8,
        timeout_secs: float = 30.0,
        guarantee: str = "at_least_once",
        tls: Mapping[str, Any] | None = None,
        retry_secs: float = 30.0,
        on_bad: OnBad = "stop",
    ) -> None:
        check_choice(_NAME, "method", method, ("POST", "PUT", "PATCH"))
        check_form(value, _NAME, "value", writes=True)
        check_positive(_NAME, concurrency=concurrency)
        self.method, self.value = method, value
        kind = content_type or _TYPES.get(value if isinstance(value, str) else "bytes", "")
        self.concurrency = concurrency
        self.requires = (*self.requires, *requirements_of(value))
        self.set_target(
            url,
            headers={"Content-Type": kind, **(headers or {})},
            tls=tls,
            timeout_secs=timeout_secs,
            guarantee=guarantee,
            map=map,
            retry_secs=retry_secs,
            on_bad=on_bad,
        )

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        super().prepare(conf, context, collector)
        self._encode = encoder(self.value, _NAME, "value")
        self._threads = ThreadPoolExecutor(self.concurrency, "topo-http-post")

    def cleanup(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        super().cleanup()

    def outgoing(self, tup: Tuple) -> Outgoing | None:
        where = ""
        if callable(self.url):
            found = self.url(tup)
            if found is None:
                return None
            check_url(_NAME, found, SCHEMES)
            where = found
        return Outgoing(where, self._encode(self.as_record(tup)))

    def send(self, records: Sequence[Outgoing]) -> Refused:
        target, is_patient = self.target(), self.is_patient
        until = time.monotonic() + self.retry_secs

        def post(record: Outgoing) -> Exception | None:
            return _post(target, self.method, record, until if is_patient else 0.0)

        refused: Refused = []
        lost: Unavailable | None = None
        wrong: ComponentError | None = None
        for record, error in zip(records, self._threads.map(post, records), strict=True):
            if isinstance(error, Unavailable):
                lost = lost or error
                if not is_patient:
                    self.context.counter("lost")
            elif isinstance(error, ComponentError):
                wrong = wrong or error
            elif error is not None:
                refused.append((record, error))
        if wrong is not None:
            raise wrong
        if lost is not None and is_patient:
            raise lost
        return refused


def _post(target: Target, method: str, record: Outgoing, until: float) -> Exception | None:
    """Send a request until it is answered; return why it is not taken, None if it is."""
    pause = _FIRST_PAUSE_SECS
    url = record.where or target.url
    key = _key(record.id)
    while True:
        after: float | None = None
        try:
            response = target.client.request(
                method, url, content=record.body, headers={"Idempotency-Key": key}
            )
        except Exception as error:
            failed = target.in_words(error)
            if isinstance(failed, ComponentError):
                return failed
        else:
            if response.is_success:
                return None
            said = target.answered(response, response.content)
            if response.status_code in (401, 403, 407) or response.has_redirect_location:
                return said  # it is the same for every record
            if not passes(response.status_code):
                return ValueError(str(said))
            failed, after = said, retry_after(response)
        pause = after if after is not None else min(2 * pause, _LONGEST_PAUSE_SECS)
        if time.monotonic() + pause >= until:
            return failed
        time.sleep(pause)


def _key(name: str) -> str:
    """Return the Idempotency-Key of a request, which a header carries and HttpSpout takes."""
    quoted = quote(name, safe=_KEY_CHARACTERS)
    if len(quoted) <= MOST_KEY:
        return quoted
    return f"topo/{hashlib.blake2b(name.encode(), digest_size=32).hexdigest()}"
