"""Asks which partitions there are, now and then, by a thread: the question may block."""

from __future__ import annotations

import threading
from collections.abc import Callable

from topo.connectors.kafka.client import TP, Client, Topics
from topo.errors import TopoError


class Discovery:
    """The partitions as they were found last, and the ids of their topics.

    `found`, `ids` and `error` are read by the task's thread, and set by the asking one; each is
    replaced as a whole. The client is used by the asking thread alone.
    """

    def __init__(
        self, connect: Callable[[], Client], topics: Topics, secs: float, wake: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._topics = topics
        self._secs = secs
        self._wake = wake
        self._ended = threading.Event()
        self.found: frozenset[TP] | None = None
        self.ids: dict[str, str] = {}
        self.error: TopoError | None = None
        self._thread = threading.Thread(target=self._run, name="kafka discovery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Have the thread end, and close its client, once its question is answered."""
        self._ended.set()
        self.error = None  # its frames hold the client, and this object

    def _run(self) -> None:
        client: Client | None = None
        while not self._ended.is_set():
            try:
                if client is None:
                    client = self._connect()
                found = frozenset(client.partitions(self._topics))
                ids = client.topic_ids({topic for topic, _ in found})
            except TopoError as error:
                self.error = error
                pause = min(1.0, self._secs)
            else:
                is_news = found != self.found or ids != self.ids
                self.ids, self.found, self.error = ids, found, None
                pause = self._secs
                if is_news:
                    self._wake()
            self._ended.wait(pause)
        self.error = None
        if client is not None:
            client.close()
