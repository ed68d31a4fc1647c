"""A keyed bolt does what a dict of plain objects does, whatever the batches and restarts are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo import KeyedBolt, TopologyBuilder, Tuple
from topo.testing import FeederSpout, TestCluster

TTL, LIMIT = 7, 4


class Visit(KeyedBolt):
    outputs = ("key", "count", "why")
    ttl = timedelta(seconds=TTL)

    def created(self) -> None:
        self.clicks = 0
        self.fired: list[float] = []

    def execute(self, tup: Tuple) -> None:
        self.clicks += 1
        if tup.after is not None:
            self.set_timer(tup.name, after=tup.after)
        self.emit([self.key, self.clicks, "click"])
        if self.clicks == LIMIT:
            self.forget()

    def on_timer(self, name: str, at: Any) -> None:
        self.fired.append(at)
        self.emit([self.key, len(self.fired), name])

    def removed(self, why: str) -> None:
        self.emit([self.key, self.clicks, why])


class Plain:
    """The same, as a loop over one list of events would do it."""

    def __init__(self) -> None:
        self.lives: dict[Any, dict[str, Any]] = {}
        self.rows: list[list[Any]] = []

    def click(self, key: Any, now: float, name: str, after: int | None) -> None:
        new = {"clicks": 0, "fired": 0, "timers": {}}
        life = self.lives.setdefault(key, new)
        life["clicks"] += 1
        life["last"] = now
        if after is not None:
            life["timers"][name] = now + after
        self.rows.append([key, life["clicks"], "click"])
        if life["clicks"] == LIMIT:
            self._remove(key, "forgotten")

    def _remove(self, key: Any, why: str) -> None:
        self.rows.append([key, self.lives.pop(key)["clicks"], why])

    def come_to(self, now: float) -> None:
        for key, life in list(self.lives.items()):
            for name, due in sorted(life["timers"].items(), key=lambda timer: timer[1]):
                if due <= min(now, life["last"] + TTL):
                    del life["timers"][name]
                    life["fired"] += 1
                    self.rows.append([key, life["fired"], name])
            if life["last"] + TTL <= now:
                self._remove(key, "ttl")

    def by_key(self) -> dict[Any, list[list[Any]]]:
        return by_key(self.rows)


def by_key(rows: list[list[Any]]) -> dict[Any, list[list[Any]]]:
    keys: dict[Any, list[list[Any]]] = {}
    for key, *rest in rows:
        keys.setdefault(key, []).append(rest)
    return keys


names = st.sampled_from(["a", "b"])
clicks = st.tuples(st.integers(0, 3), names, st.none() | st.integers(0, 9))
steps = st.lists(
    st.lists(clicks, min_size=1, max_size=3) | st.integers(1, 5) | st.just("restart"), max_size=25
)


@given(steps=steps, seed=st.integers(0, 9), tasks=st.sampled_from([1, 3]))
@examples(80)
def test_a_keyed_bolt_is_a_dict_of_objects(steps: Any, seed: int, tasks: int) -> None:
    feeder = FeederSpout(["key", "name", "after"])
    builder = TopologyBuilder()
    builder.set_spout("clicks", feeder)
    builder.set_bolt("visits", Visit(), tasks).fields_grouping("clicks", "key")
    plain = Plain()
    with TestCluster(seed) as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        for step in steps:
            if step == "restart":
                run.restart()
            elif isinstance(step, int):
                cluster.advance(step)
                plain.come_to(cluster.now)
            else:
                for key, name, after in step:
                    feeder.feed([key, name, after])
                    plain.click(key, cluster.now, name, after)
                run.settle()
                # A timer that is due at once comes with the next batch.
                cluster.advance(0.5)
                plain.come_to(cluster.now)
        assert by_key(run.tuples("visits")) == plain.by_key()
        assert run.stats().components["visits"].state_rows == len(plain.lives)
