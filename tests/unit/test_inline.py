"""The inline engine's runs: their status, what moves them, and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.doubles import Failing, Identity, Numbers, Sink, Total
from tests.wiring import Fed, line
from topo import BasicBolt, Bolt, ConfigError, RunError, Spout, StatefulBasicBolt, Tuple
from topo.testing import FeederSpout, TestCluster


class Endless(Spout):
    outputs = ("x",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        self.emit([self.next], msg_id=self.next)
        self.next += 1


class Notes(FeederSpout):
    """Notes its hooks in a list that the test sees."""

    hooks: list[str] = []

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        Notes.hooks.append("open")

    def activate(self) -> None:
        Notes.hooks.append("activate")

    def deactivate(self) -> None:
        Notes.hooks.append("deactivate")

    def close(self) -> None:
        Notes.hooks.append("close")


@pytest.fixture
def noted() -> Notes:
    Notes.hooks.clear()
    return Notes("x")


def test_activate_and_deactivate(noted: Notes) -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(noted, Sink()))
        run.settle()
        assert run.status == "ACTIVE"
        run.deactivate()
        noted.feed([1], msg_id=1)
        run.settle()
        assert (run.status, noted.acked) == ("INACTIVE", [])
        run.settle()
        run.activate()
        run.settle()
        assert (run.status, noted.acked) == ("ACTIVE", [1])
    assert Notes.hooks == ["open", "activate", "deactivate", "activate", "close"]
    assert run.status == "KILLED"


def test_an_inactive_topology_hears_of_its_messages(noted: Notes) -> None:
    class Late(Bolt):
        def execute(self, tup: Tuple) -> None:
            self.kept = tup

        def on_tick(self, tup: Tuple) -> None:
            self.ack(self.kept)

    with TestCluster() as cluster:
        conf = {"topology.tick.tuple.freq.secs": 5}
        run = cluster.submit_topology("t", line(noted, Late()), conf)
        noted.feed([1], msg_id=1)
        run.settle()
        run.deactivate()
        cluster.advance(5)
        assert (run.status, noted.acked) == ("INACTIVE", [1])


def test_a_restarted_spout_is_opened_and_activated_again(noted: Notes) -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(noted, Sink()))
        run.settle()
        run.restart()
        run.settle()
        run.deactivate()
        run.settle()
        run.restart()
        run.settle()
    assert Notes.hooks == ["open", "activate", "open", "activate", "deactivate", "open", "close"]


def test_an_endless_spout_does_not_settle() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Endless(), Sink()))
        with pytest.raises(RunError, match=r"still moves after 500 steps.*run.step\(n\) makes"):
            run.settle(max_steps=500)
        assert run.status == "ACTIVE"


def test_a_step_is_one_call_of_next_tuple_for_each_spout_task() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Endless(), Identity()))
        run.step()
        assert run.tuples("b1") == [[0]]
        run.step(3)
        assert run.tuples("b1") == [[0], [1], [2], [3]]
        assert run.acked["s"] == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="at least one"):
            run.step(0)


def test_time_goes_from_event_to_event() -> None:
    times: list[float] = []

    class Clock(BasicBolt):
        def execute(self, tup: Tuple) -> None:
            times.append(self.context.now())

    fed = Fed(Clock(), conf={"topology.tick.tuple.freq.secs": 4})
    fed.feed(1)
    fed.cluster.advance(9)
    assert (times, fed.cluster.now) == ([0.0, 4.0, 8.0], 9.0)
    with pytest.raises(ValueError, match="time does not go back"):
        fed.cluster.advance(-1)


def test_a_restart_loses_nothing_that_was_saved() -> None:
    class Totals(StatefulBasicBolt):
        outputs = ("x", "total", "calls")

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.calls = 0

        def execute(self, tup: Tuple) -> None:
            self.calls += 1
            self.state[tup.x % 2] = self.state.get(tup.x % 2, 0) + tup.x
            self.emit([tup.x, self.state[tup.x % 2], self.calls])

    fed = Fed(Totals()).feed(1, 2, 3)
    fed.run.restart()
    fed.feed(5, 6)
    assert fed.run.tuples("b1")[-2:] == [[5, 9, 4], [6, 8, 5]]


def test_a_finite_topology_completes_with_a_last_tick_and_closes() -> None:
    ended: list[str] = []

    class Summary(BasicBolt):
        outputs = ("sum",)

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.sum = 0

        def get_component_configuration(self) -> dict[str, Any]:
            return {"topology.tick.tuple.freq.secs": 3600}

        def execute(self, tup: Tuple) -> None:
            self.sum += tup[0]

        def on_tick(self, tup: Tuple) -> None:
            self.emit([self.sum])

        def cleanup(self) -> None:
            ended.append("cleanup")

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Numbers(5), Summary(), Total()))
        run.settle()
        assert (run.status, run.reason) == ("COMPLETED", "")
        assert run.tuples("b1") == [[10]]
        assert run.tuples("b2") == [[1]]
        assert ended == ["cleanup"]
        run.kill()
        assert run.status == "COMPLETED"


def test_it_does_not_complete_while_something_is_in_flight() -> None:
    class Keeps(Bolt):
        def execute(self, tup: Tuple) -> None:
            self.kept = tup

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Numbers(1), Keeps()))
        run.settle()
        assert run.status == "ACTIVE"
        cluster.advance(30)
        assert run.status == "COMPLETED"
        assert run.failed == {"s": [0]}


def test_an_error_in_the_last_tick_fails_the_run() -> None:
    class Breaks(BasicBolt):
        def get_component_configuration(self) -> dict[str, Any]:
            return {"topology.tick.tuple.freq.secs": 3600}

        def execute(self, tup: Tuple) -> None: ...

        def on_tick(self, tup: Tuple) -> None:
            raise ZeroDivisionError("at the end")

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Numbers(1), Breaks()))
        with pytest.raises(ZeroDivisionError):
            run.settle()
        assert (run.status, "at the end" in run.reason) == ("FAILED", True)


@pytest.mark.parametrize("what", ["restart", "activate", "deactivate"])
def test_a_run_that_has_ended_cannot_be_moved(what: str) -> None:
    fed = Fed(Sink()).feed(1)
    fed.run.kill()
    with pytest.raises(RunError, match=f"t is KILLED; it cannot {what}"):
        getattr(fed.run, what)()
    fed.run.settle()
    fed.cluster.advance(100)
    assert fed.run.status == "KILLED"


def test_a_name_is_taken_while_its_run_lives() -> None:
    with TestCluster() as cluster:
        first = cluster.submit_topology("t", line(Endless(), Sink()))
        with pytest.raises(RunError, match="t is running here already"):
            cluster.submit_topology("t", line(Endless(), Sink()))
        first.kill()
        assert cluster.submit_topology("t", line(Endless(), Sink())).status == "ACTIVE"


def test_several_topologies_share_a_clock() -> None:
    with TestCluster() as cluster:
        runs = [
            cluster.submit_topology(name, line(Numbers(n), Total()))
            for name, n in (("a", 2), ("b", 3))
        ]
        cluster.advance(1)
        assert [run.tuples("b1")[-1] for run in runs] == [[2], [3]]


def test_what_was_not_declared_cannot_be_looked_at() -> None:
    fed = Fed(Identity()).feed(1)
    with pytest.raises(RunError, match="'b1' declares no stream 'odd'; it declares 'default'"):
        fed.run.tuples("b1", stream="odd")
    with pytest.raises(Exception, match=r"no component 'b11'.*did you mean 'b1'"):
        fed.run.tuples("b11")


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"topology.wokers": 2}, "no key 'topology.wokers'; did you mean 'topology.workers'?"),
        ({"workers": 2}, "no key 'workers'; topology.workers"),
        ({"topology.debug": "yes"}, "topology.debug must be true or false; got 'yes'"),
        ({"b11/topology.debug": True}, "no component 'b11'; did you mean 'b1'?"),
    ],
)
def test_wrong_settings_are_refused_at_the_submit(conf: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Fed(Sink(), conf=conf)
    assert message in str(refused.value)


def test_storms_meaningless_setting_is_accepted_with_one_warning() -> None:
    with pytest.warns(UserWarning, match="topology.worker.childopts is Storm's") as warned:
        fed = Fed(Sink(), conf={"topology.worker.childopts": "-Xmx1g"})
    assert len(warned) == 1
    assert fed.run.warnings == [str(warned[0].message)]
    assert fed.feed(1).feeder.acked == [1]


def test_null_ackers_track() -> None:
    fed = Fed(Failing(1), conf={"topology.acker.executors": None}).feed(1, 2)
    assert (fed.feeder.failed, fed.feeder.acked) == ([1], [2])
    assert fed.run.stats().acker is not None


def test_settings_reach_the_component() -> None:
    seen: dict[str, Any] = {}

    class Looks(BasicBolt):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            seen.update(conf)
            assert context.conf == conf
            with pytest.raises(TypeError, match="read-only"):
                conf["mine"] = 2

        def get_component_configuration(self) -> dict[str, Any]:
            return {"own": "component", "mine": "component"}

        def execute(self, tup: Tuple) -> None: ...

    Fed(Looks(), conf={"mine": "topology", "b1/topology.debug": True}).feed(1)
    assert (seen["mine"], seen["own"], seen["topology.debug"]) == ("component", "component", True)
    assert seen["topology.message.timeout.secs"] == 30
    assert seen["topology.name"] == "t"


def test_the_context_knows_the_topology() -> None:
    seen: dict[str, Any] = {}

    class Looks(Identity):
        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            seen["sources"] = {k: str(v) for k, v in context.this_sources.items()}
            seen["targets"] = {
                stream: {name: str(grouping) for name, grouping in readers.items()}
                for stream, readers in context.this_targets.items()
            }
            seen["this"] = (context.this_component_id, context.this_task_id, context.topology_name)
            seen["tasks"] = (context.component_ids, context.component_tasks("s"))
            seen["of"] = (context.component_of(3), list(context.output_fields("s")))
            with pytest.raises(Exception, match=r"declares no stream 'odd'"):
                context.output_fields("s", "odd")
            with pytest.raises(Exception, match=r"no component 'z'"):
                context.component_tasks("z")

    Fed(Looks(), Sink()).feed(1)
    assert seen == {
        "sources": {("s", "default"): "shuffle"},
        "targets": {"default": {"b2": "shuffle"}},
        "this": ("b1", 1, "t"),
        "tasks": (["b1", "b2", "s"], [3]),
        "of": ("s", ["x"]),
    }
