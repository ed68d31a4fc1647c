"""The cases of Kafka sources on Spark: a reading gives the tuples that it gives inline.

The runners of `tests/connectors` say what the log has and how it is read. What a reading emits
until it first stands still is noted, with the log of that moment; on Spark the same spout reads
that log to its end. The slots are other processes, so the broker serves them over a socket.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Listener
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from tests.connectors import test_kafka_cases, test_kafka_spout
from tests.connectors.scripted_kafka import Broker, Keeps, Reading, ScriptedSpout
from tests.property.scale import scaled
from topo import TopologyBuilder, Unavailable
from topo.connectors.kafka.client import OutOfRange
from topo.testing import complete_topology

pytestmark = pytest.mark.spark

_CASE = re.compile(r"\[([A-Z]+-\d+)")
KEY = b"cases"
OWN, THERE = "topo reading", "topo complete"
"""What a group's offsets say of the topology that has committed them: here, and on Spark."""


@dataclass
class Noted:
    """A reading of a case, the log that it began with, and what it emitted."""

    name: str
    spout: ScriptedSpout
    tasks: int
    broker: Broker
    rows: list[list[Any]]


class BrokerServer:
    """Serves clients of the test's brokers to other processes, each over its own connection."""

    def __init__(self) -> None:
        self.brokers: list[Broker] = []
        self._listener = Listener(("127.0.0.1", 0), authkey=KEY)
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> Any:
        """Where spouts connect to."""
        return self._listener.address

    def _accept(self) -> None:
        while True:
            connection = self._listener.accept()
            number = connection.recv()
            if number is None:
                connection.close()
                return
            self._threads.append(Thread(target=self._serve, args=(connection, number)))
            self._threads[-1].start()

    def _serve(self, connection: Any, number: int) -> None:
        client = self.brokers[number].client()
        with connection, suppress(EOFError, ConnectionError):
            while True:
                name, arguments = connection.recv()
                try:
                    connection.send((True, getattr(client, name)(*arguments)))
                except (Unavailable, OutOfRange) as error:
                    connection.send((False, error))

    def close(self) -> None:
        """Return when all clients are gone."""
        connect(self.address, authkey=KEY).send(None)
        for thread in self._threads:
            thread.join()
        self._listener.close()


class RemoteClient:
    """A client of a broker of another process; its methods are asked for there."""

    def __init__(self, address: Any, number: int) -> None:
        self._connection = connect(address, authkey=KEY)
        self._connection.send(number)

    def __getattr__(self, name: str) -> Any:
        return partial(self._ask, name)

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._connection.send((name, arguments))
        is_answer, answer = self._connection.recv()
        if not is_answer:
            raise answer
        return answer

    def close(self) -> None:
        self._connection.close()


@dataclass
class Served:
    """One broker of the test's process, as a spout elsewhere knows it."""

    address: Any
    number: int
    ids: dict[str, str]

    def client(self) -> Any:
        return RemoteClient(self.address, self.number)


def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noted]:
    """Run the cases, and yield those of their readings that begin anew, with nothing that fails."""
    notes: list[Noted] = []

    class NotingReading(Reading):
        def __init__(self, spout: Any, bolt: Any = None, **more: Any) -> None:
            self.spout, self.tasks = spout, more.get("tasks", 1)
            is_plain = type(spout) is ScriptedSpout and not set(more) - {"tasks"}
            self.is_noted = not is_plain or type(bolt or Keeps()) is not Keeps
            self.assigned = len(ScriptedSpout.broker.assigned)
            super().__init__(spout, bolt, **more)

        def settle(self) -> Reading:
            broker: Broker = ScriptedSpout.broker
            is_new = len(broker.assigned) == self.assigned and not self.is_noted
            before = deepcopy(broker) if is_new else broker
            super().settle()
            if is_new and not broker.away:
                rows = [list(row) for row in self.run.tuples("kafka")]
                notes.append(Noted("", self.spout, self.tasks, before, rows))
            self.is_noted = True
            return self

    for module in (test_kafka_spout, test_kafka_cases):
        monkeypatch.setattr(module, "Reading", NotingReading)
        for test in cases_of(module):
            for arguments in arguments_of(test):
                broker = Broker()
                monkeypatch.setattr(ScriptedSpout, "broker", broker)
                test_kafka_spout.Told.held.clear()
                test_kafka_spout.Told.fails.clear()
                test(broker=broker, **arguments)
                for note in notes:
                    note.name = test.__name__
                    yield note
                notes.clear()


def cases_of(module: ModuleType) -> Iterator[Any]:
    """Yield the tests that name a case, and need nothing but the broker."""
    for name, test in list(vars(module).items()):
        if name.startswith("test_") and _CASE.search(inspect.getdoc(test) or ""):
            given = {name for mark in getattr(test, "pytestmark", ()) for name in names_of(mark)}
            if set(inspect.signature(test).parameters) - given == {"broker"}:
                yield test


def names_of(mark: pytest.Mark) -> list[str]:
    """Return the arguments that a parametrization gives."""
    names = mark.args[0]
    return re.findall(r"\w+", names) if isinstance(names, str) else list(names)


def arguments_of(test: Any) -> Iterator[dict[str, Any]]:
    """Yield the arguments of a test, a dictionary for each time that it runs."""
    choices = []
    for mark in getattr(test, "pytestmark", ()):
        names = names_of(mark)
        values = [v if len(names) > 1 else (v,) for v in mark.args[1]]
        choices.append([dict(zip(names, value, strict=True)) for value in values])
    for chosen in product(*choices):
        yield {name: value for each in chosen for name, value in each.items()}


@pytest.fixture
def server() -> Iterator[BrokerServer]:
    server = BrokerServer()
    yield server
    server.close()


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_cases_of_kafka_give_the_same_on_spark(
    mode: str, monkeypatch: pytest.MonkeyPatch, server: BrokerServer
) -> None:
    notes = list(noted(monkeypatch))
    assert len(notes) > 20
    notes = notes[:: 1 if scaled(3) == 3 else 3]
    builder = TopologyBuilder()
    for number, note in enumerate(notes):
        server.brokers.append(note.broker)
        committed = note.broker.committed
        for partition, (offset, by) in committed.items():
            committed[partition] = offset, by.replace(OWN, THERE)
        spout = copy(note.spout)
        spout.broker = Served(server.address, number, note.broker.ids)
        spout.until = spout.until or "latest"
        builder.set_spout(f"kafka_{number}", spout, parallelism=note.tasks)
        builder.set_bolt(f"b_{number}", Keeps()).shuffle_grouping(f"kafka_{number}")
    done = complete_topology(builder.create_topology(), engine="spark", mode=mode)
    rows = {number: sorted_rows(done.tuples(f"kafka_{number}")) for number in range(len(notes))}
    assert any(rows.values())
    assert {
        note.name: (rows[number], sorted_rows(note.rows))
        for number, note in enumerate(notes)
        if rows[number] != sorted_rows(note.rows)
    } == {}


def sorted_rows(rows: Any) -> Mapping[str, int]:
    return Counter(map(repr, map(list, rows)))
