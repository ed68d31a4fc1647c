"""The topology: immutable, comparable, printable, and whole in another process."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import topo
from tests.conformance.doubles import Counter, FirstTasks, Identity, Sink, Words
from topo import InvalidTopologyError, Rule, RuleBolt, TopoError, Topology, TopologyBuilder
from topo.drpc import DrpcSpout, ReturnResults
from topo.shipping.pickling import pickle_to_travel
from topo.testing import complete_topology
from topo.topology.layout import TaskLayout


def build(parallelism: int = 2) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=parallelism)
    builder.set_bolt("count", Counter(), 3).fields_grouping("words", "word").set_num_tasks(5)
    builder.set_bolt("sink", Sink()).shuffle_grouping("words").custom_grouping(
        "count", FirstTasks(1)
    )
    return builder.create_topology()


def test_it_cannot_be_changed() -> None:
    topology: Any = build()
    with pytest.raises(AttributeError, match="a Topology cannot be changed: 'components'"):
        topology.components = {}
    with pytest.raises(AttributeError, match="cannot be changed"):
        topology.anything = 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        del topology._components
    with pytest.raises(TypeError):
        topology.components["x"] = 1
    with pytest.raises(AttributeError):
        topology.components["count"].parallelism = 4
    with pytest.raises(TypeError):
        topology.components["count"].conf["a"] = 1


def test_later_changes_to_the_instances_do_not_count() -> None:
    builder = TopologyBuilder()
    spout = Words()
    builder.set_spout("words", spout)
    before = builder.create_topology()
    data = before.to_bytes()
    spout.later = 1  # type: ignore[attr-defined]
    assert before.to_bytes() == data
    assert builder.create_topology() != before


def test_equal_topologies_are_equal() -> None:
    assert build() == build()
    assert hash(build()) == hash(build())
    assert build() != build(parallelism=1)
    assert build() != "topology"
    assert len({build(), build(), build(parallelism=1)}) == 2


def test_it_prints() -> None:
    assert repr(build()) == "Topology(count x3, sink x1, words x2)"
    assert str(build()).splitlines() == [
        "bolt count x3 (Counter) <- words fields(word)",
        "bolt sink x1 (Sink) <- words shuffle, count custom",
        "spout words x2 (Words)",
    ]


def test_it_can_be_looked_into() -> None:
    topology = build()
    assert list(topology.components) == ["count", "sink", "words"]
    assert [spout.id for spout in topology.spouts] == ["words"]
    assert [bolt.id for bolt in topology.bolts] == ["count", "sink"]
    assert [consumer.id for consumer, _ in topology.consumers("words")] == ["count", "sink"]
    with pytest.raises(TopoError, match=r"no component 'cuont'; .* did you mean 'count'\?"):
        topology.component("cuont")


class Answers(ReturnResults):
    """A user's own."""


def test_a_component_says_what_it_is_drawn_as_wherever_its_classes_are_missing() -> None:
    builder = TopologyBuilder()
    builder.set_spout("calls", DrpcSpout("echo"))
    rules = RuleBolt([Rule("some", "args != ''")], match="all")
    builder.set_bolt("rules", rules).shuffle_grouping("calls")
    builder.set_bolt("answers", Answers()).shuffle_grouping("calls")
    builder.set_bolt("sink", Sink()).shuffle_grouping("calls")
    again = Topology.from_bytes(builder.create_topology().to_bytes())
    roles = {name: component.role for name, component in again.components.items()}
    assert roles == {"calls": "drpc", "rules": "rules", "answers": "answers", "sink": ""}


def test_it_travels_as_bytes() -> None:
    topology = build()
    again = Topology.from_bytes(topology.to_bytes())
    assert again == topology
    assert again.to_bytes() == topology.to_bytes()
    assert str(again) == str(topology)
    assert pickle.loads(pickle.dumps(topology)) == topology
    assert copy.deepcopy(topology) == topology


@pytest.mark.parametrize("data", [b"", b"not a topology", b"\xff\xff"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(TopoError, match=r"these \d+ bytes are no topology|format 0"):
        Topology.from_bytes(data)


def test_task_ids_run_over_the_sorted_names() -> None:
    layout = TaskLayout(build())
    assert {name: list(tasks) for name, tasks in layout.components.items()} == {
        "count": [1, 2, 3, 4, 5],
        "sink": [6],
        "words": [7, 8],
    }
    assert [layout.component_of(task) for task in (1, 6, 8)] == ["count", "sink", "words"]
    assert layout.index_of(8) == 1
    with pytest.raises(TopoError, match="no task 9; the topology has tasks 1 to 8"):
        layout.component_of(9)


def test_max_task_parallelism_caps_every_component() -> None:
    layout = TaskLayout(build(), {"topology.max.task.parallelism": 1})
    assert [len(tasks) for tasks in layout.components.values()] == [1, 1, 1]


@pytest.mark.parametrize(
    ("conf", "counts"),
    [
        ({"topology.tasks": 6}, [5, 6, 6]),
        ({"count/topology.tasks": 6}, [6, 1, 2]),
        ({"count/topology.max.task.parallelism": 3}, [3, 1, 2]),
        ({"topology.tasks": 6, "count/topology.max.task.parallelism": 4}, [4, 6, 6]),
    ],
)
def test_tasks_are_counted_as_the_settings_say(conf: dict[str, int], counts: list[int]) -> None:
    layout = TaskLayout(build(), conf)
    assert [len(tasks) for tasks in layout.components.values()] == counts


def test_more_tasks_than_a_root_can_name_are_a_problem() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=65_536)
    with pytest.raises(InvalidTopologyError, match="65536 tasks; 65535 is the most"):
        TaskLayout(builder.create_topology())


# -- in another process ----------------------------------------------------------------------------

USERS_MODULE = '''
"""The user's own module, which the other process cannot import."""
import dataclasses
import enum
from collections import namedtuple
from helper_of_mine import shout
from topo import BasicBolt, CustomStreamGrouping, Spout, StatefulBolt, TopologyBuilder, bolt

GREETING = "hello"

class Colour(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Point:
    x: int
    class Inner:
        pass

Pair = namedtuple("Pair", "a b")

class Source(Spout):
    outputs = ("value",)
    def open(self, conf, context, collector):
        self.left = 3
    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit([Point(self.left)], msg_id=Point(self.left))
    def is_exhausted(self):
        return not self.left

class Keeps(StatefulBolt):
    outputs = ("point", "colour", "pair", "text")
    def prepare(self, conf, context, collector):
        self.seen = []
    def execute(self, tup):
        assert isinstance(tup.value, Point), type(tup.value)
        self.seen.append(tup.value)
        self.state[tup.value.x] = Pair(tup.value, Colour.RED)
        self.inner = Point.Inner()
        assert all(isinstance(p, Point) for p in self.seen)
        self.emit([tup.value, Colour.RED, Pair(1, 2), shout(GREETING)], anchors=tup)
        self.ack(tup)

@bolt(outputs=("text",))
def describe(tup):
    assert tup.colour is Colour.RED
    yield [f"{tup.point.x} {tup.pair.b} {tup.text}"]

class ToAll(CustomStreamGrouping):
    def prepare(self, context, stream, tasks):
        self.tasks = tasks
    def choose_tasks(self, source, values):
        assert isinstance(values[0], Point)
        return list(self.tasks)

def build():
    builder = TopologyBuilder()
    builder.set_spout("source", Source())
    builder.set_bolt("keeps", Keeps(), 2).fields_grouping("source", "value")
    builder.set_bolt("describe", describe).custom_grouping("keeps", ToAll())
    return builder.create_topology()
'''

HELPER = "def shout(text):\n    return text.upper()\n"

ELSEWHERE = """
    import sys
    from topo import Topology
    from topo.engine.inline.run import InlineRun
    topology = Topology.from_bytes(open(sys.argv[1], "rb").read())
    try:
        import users_module
    except ImportError:
        pass
    else:
        raise SystemExit("the user's module is here")
    run = InlineRun("t", topology, None, now=lambda: 0.0)
    run.step()
    run.restart()
    run.settle()
    print(run.status, *sorted(text for text, in run.tuples("describe")), sep="|")
    print(sorted(point.x for point in run.acked["source"]))
"""


def test_the_users_classes_work_where_their_module_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "users_module.py").write_text(USERS_MODULE)
    (tmp_path / "mine" / "helper_of_mine.py").write_text(HELPER)
    build_it = "import sys, users_module; sys.stdout.buffer.write(users_module.build().to_bytes())"
    root = str(Path(topo.__file__).parents[1])
    env = {"PYTHONPATH": f"{root}:{tmp_path / 'mine'}"}
    built = subprocess.run([sys.executable, "-c", build_it], env=env, capture_output=True)
    assert built.returncode == 0, built.stderr.decode()
    (tmp_path / "topology").write_bytes(built.stdout)
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ELSEWHERE), str(tmp_path / "topology")],
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["COMPLETED|0 2 HELLO|1 2 HELLO|2 2 HELLO", "[0, 1, 2]"]


def test_a_topology_from_bytes_runs_in_this_process_too() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", Words())
    builder.set_bolt("same", Identity()).shuffle_grouping("words")
    again = Topology.from_bytes(builder.create_topology().to_bytes())
    result = complete_topology(again, mock_sources={"words": [["a"]]})
    assert result.tuples("same") == [["a"]]


class First(Sink):
    """While it is pickled, another thread begins to."""

    def __getstate__(self) -> dict[str, Any]:
        other = Second()
        self.other = ThreadPoolExecutor(1).submit(pickle_to_travel, other)
        other.begun.wait(0.1)  # it should not, before this one is done
        self.done = other.first_is_done
        return {}


class Second(Sink):
    def __init__(self) -> None:
        self.begun, self.first_is_done = Event(), Event()

    def __getstate__(self) -> dict[str, Any]:
        self.begun.set()
        self.first_is_done.wait(10)
        return {"then": Identity}


def test_topologies_may_be_made_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    first = First()
    pickle_to_travel(first)
    first.done.set()
    data = first.other.result(10)
    monkeypatch.delattr(sys.modules[Identity.__module__], Identity.__name__)
    # Since it was not pickled by its name:
    assert vars(pickle.loads(data))["then"].__name__ == Identity.__name__
