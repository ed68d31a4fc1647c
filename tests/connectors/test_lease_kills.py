"""Slots are killed at the points of a batch on the way from Pub/Sub to MongoDB, and back.

Nothing may be lost: every message is in a committed batch, every record of a committed batch is one
document, every document is one change, and every change is published; what is published twice bears
the same id. TOPO_KILLS=100 kills each component a hundred times, dealt over its points.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.dying import (
    A_KILL_SECS,
    KILLS,
    DyingBolt,
    DyingSpout,
    killed,
    kills_at_each,
    told,
)
from tests.connectors.scripted_mongodb import MongoServer
from tests.connectors.scripted_pubsub import PubSubServer
from tests.fault.spark_processes import wait_until
from topo import LocalCluster, TopologyBuilder
from topo.connectors.mongodb import MongoBolt, MongoChanges
from topo.connectors.pubsub import PubSubBolt, PubSubSpout

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.timeout(900 + 4 * A_KILL_SECS * KILLS),
]

CONF = {"topology.workers": 2, "topology.restart.max": 20}
PAUSE_SECS = 0.02 if KILLS == 1 else 0.25
LEAST = 300
POINTS: dict[str, tuple[str, ...]] = {
    "messages": ("emitted", "prepared", "committed"),
    "documents": ("executed", "prepared", "committed", "published"),
    "changes": ("emitted", "prepared", "committed"),
    "topic": ("prepared", "committed"),
}


class DyingMessages(DyingSpout, PubSubSpout):
    pass


class DyingChanges(DyingSpout, MongoChanges):
    pass


class DyingDocuments(DyingBolt, MongoBolt):
    pass


class DyingTopic(DyingBolt, PubSubBolt):
    pass


def test_what_is_committed_is_published_wherever_slots_die(tmp_path: Path) -> None:
    pubsub, mongodb = PubSubServer(), MongoServer()
    place: dict[str, Any] = {"emulator": pubsub.emulator}
    components: dict[str, Any] = {
        "messages": DyingMessages("projects/p/subscriptions/in", fields="n", **place),
        "documents": DyingDocuments(mongodb.url, "d", "all", guarantee="exactly_once"),
        "changes": DyingChanges(mongodb.url, "d", "all", fields="n"),
        "topic": DyingTopic("projects/p/topics/out", after_commit=True, **place),
    }
    builder = TopologyBuilder()
    for name, component in components.items():
        component.dying_at(POINTS[name], tmp_path / name)
    for source, sink in (("messages", "documents"), ("changes", "topic")):
        builder.set_spout(source, components[source])
        builder.set_bolt(sink, components[sink]).shuffle_grouping(source)
    directories = [tmp_path / name for name in components]
    deaths = sum(len(points) * kills_at_each(points) for points in POINTS.values())
    pause, count, looks = threading.Event(), 0, Counter[str]()
    try:
        with LocalCluster("local[2]") as cluster:
            capture = ["messages", "changes"]
            topology = builder.create_topology()
            run = cluster.submit_topology("kills", topology, CONF, capture=capture)
            # "latest" is the moment of the first start.
            wait_until(lambda: (mongodb.opened and pubsub.open_pulls) or run.wait(0), "the sources")
            while count < LEAST or (killed(directories) < deaths and not run.wait(0)):
                pubsub.write(*(b'{"n": %d}' % n for n in range(count, count + 10)), name="in")
                count += 10
                pause.wait(PAUSE_SECS)

            def is_published() -> bool:
                # What was lent to a process that died is lent to the next one, as after its time.
                looks.update(each.handle for each in [*pubsub.messages["in"]] if each.handle)
                pubsub.expire([handle for handle in looks if looks[handle] == 400], "in")
                values = mongodb.values("all")
                is_all = len({document["n"] for document in values}) == count
                return is_all and not pubsub.values("in") and len(published(pubsub)) == len(values)

            wait_until(lambda: is_published() or run.wait(0), "all of it")
            for each in directories:
                (each / "stop").touch()
            run.await_completion(120)
            messages, changes = (run.tuples(name) for name in capture)
    finally:
        pubsub.close()
        mongodb.close()
    print(f"{told(directories)}; {count} messages")
    assert killed(directories) == deaths
    numbers = sorted(number for (number,) in messages)
    assert set(numbers) == set(range(count))
    assert sorted(document["n"] for document in mongodb.values("all")) == numbers
    assert mongodb.repeated > 0  # the control: under new ids these would be there twice
    assert sorted(number for (number,) in changes) == numbers
    assert sorted(published(pubsub).values()) == numbers


def published(server: PubSubServer) -> dict[str, int]:
    """Return the numbers that were published, by the ids of their messages."""
    by_id: dict[str, int] = {}
    for each in [*server.messages.get("out", [])]:
        number = json.loads(each.message.data)["n"]
        assert by_id.setdefault(each.message.attributes["topo_id"], number) == number
    return by_id
