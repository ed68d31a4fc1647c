"""The Streams API against test cases of Storm, Trident, bytewax, quix and Kafka Streams, as data.

`cases/streams.jsonl` says what each program does in words; `PROGRAMS` has the programs. A case that
no test here runs has to be listed with its reason, so that a new one cannot pass unseen.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cases import Case, read_cases
from topo import (
    AfterCount,
    AtWatermark,
    BasicBolt,
    EventTime,
    Global,
    Sliding,
    Spout,
    Sum,
    TopologyBuilder,
    Tumbling,
    Tuple,
    WindowAggregate,
    WindowedBolt,
)
from topo.connectors.sql import SqlLookupBolt
from topo.engine.spark.plan import make_plan
from topo.errors import StreamError
from topo.operators.aggregates.combiners import Count
from topo.streams import (
    MemoryStore,
    Opaque,
    OpaqueValue,
    Process,
    Stream,
    StreamBuilder,
    Transactional,
)
from topo.testing import FeederSpout, TestCluster, complete_topology

CASES = read_cases(Path(__file__).parent / "cases" / "streams.jsonl")


def of_kind(kind: str, *left_out: str) -> list[Any]:
    return [
        pytest.param(case, id=case["name"])
        for case in CASES
        if case["kind"] == kind and case["topo"] == "must" and case["name"] not in left_out
    ]


class Items(Spout):
    """Emits the items of a list."""

    outputs = ("value",)

    def __init__(self, items: Iterable[Any]) -> None:
        self.left = list(items)

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left.pop(0)], msg_id=len(self.left))

    def is_exhausted(self) -> bool:
        return not self.left


class Sink(BasicBolt):
    """Passes on each element as one value: a pair as a list of two."""

    outputs = ("element",)

    def execute(self, tup: Tuple) -> None:
        self.emit([[tup.key, tup.value] if "key" in tup.fields else tup.value])


def results(
    write: Callable[[StreamBuilder, dict[str, Stream[Any]]], Stream[Any]],
    inputs: dict[str, list[Any]],
) -> list[Any]:
    """Run a program to the end of its inputs; return what comes out."""
    builder = StreamBuilder()
    streams = {name: builder.stream(Items(items)) for name, items in inputs.items()}
    write(builder, streams).to(Sink(), name="sink")
    topology = builder.build()
    return [row[0] for row in complete_topology(topology).tuples("sink")]


class DropsThree(Process[str, int, tuple[str, float]]):
    def on_value(self, key: str, value: int) -> None:
        kept = [*self.state.get("kept", []), value]
        mean = sum(kept) / len(kept)
        if len(kept) > 3:
            kept = kept[:-3]
            mean = sum(kept) / len(kept)
        self.state["kept"] = kept
        self.emit((key, mean))


class Rising(Process[str, int, tuple[str, int]]):
    def on_value(self, key: str, value: int) -> None:
        if value > self.state.get("before", 0):
            self.emit((key, value))
        self.state["before"] = value


PROGRAMS: dict[str, Callable[[StreamBuilder, dict[str, Stream[Any]]], Stream[Any]]] = {
    "filter_map: None is left out": lambda s, i: i[""].filter_map(
        lambda x: None if x % 2 else x + 1
    ),
    "flat_map of a generator": lambda s, i: i[""].flat_map(
        lambda pair: (pair[0] for _ in range(pair[1]))
    ),
    "stateful map": lambda s, i: i[""].key_by(lambda x: "ALL").process(DropsThree()),
    "merge": lambda s, i: s.merge(*i.values()),
    "without a window an aggregate emits at every value": lambda s, i: (
        i[""].key_by(lambda pair: pair[0]).count()
    ),
    "stateful flat map": lambda s, i: i[""].key_by(lambda x: "ALL").process(Rising()),
    "lookup with a cache": lambda s, i: i[""].map({"a": 1, "b": 2}.get),
    "count_final": lambda s, i: i[""].key_by().count().at_end(),
    "fold_final": lambda s, i: i[""].key_by(lambda x: "ALL").fold(0, max).at_end(),
    "min by": lambda s, i: i[""].key_by(lambda x: "a").min(by=lambda x: x).at_end(),
    "max by": lambda s, i: i[""].key_by(lambda x: "a").max(by=lambda x: x).at_end(),
    "key_by": lambda s, i: i[""].key_by(str),
}
PROGRAMS |= {
    "collect by 3, the rest at the end": lambda s, i: (
        i[""]
        .key_by(lambda x: "ALL")
        .window(Global(), trigger=AtWatermark(early=AfterCount(3)), mode="discard")
        .collect()
        .map(lambda r: (r.key, r.value))
    ),
    "docs: group_by_key of one window": lambda s, i: (
        i[""]
        .key_by(lambda pair: pair[0])
        .map_values(lambda pair: pair[1])
        .window(Global())
        .collect()
        .map(lambda r: (r.key, sorted(r.value)))
    ),
}
PEEK = "peek sees every value, and where"


@pytest.mark.parametrize("case", of_kind("operators", PEEK))
def test_operators(case: Case) -> None:
    inputs: dict[str, list[Any]] = {}
    for step in case["steps"]:
        if "in" in step:
            inputs.setdefault(step.get("from", ""), []).append(step["in"])
    (expected,) = [step["out"] for step in case["steps"] if "out" in step]
    found = results(PROGRAMS[case["name"]], inputs)
    found = [list(element) if isinstance(element, tuple) else element for element in found]
    if case.get("unordered"):
        assert Counter(map(repr, found)) == Counter(map(repr, expected))
        return
    assert _by_key(found) == _by_key(expected)


def _by_key(elements: list[Any]) -> dict[Any, list[Any]]:
    """The lists that have an order: the elements of one key, or all if there are no keys."""
    keyed: dict[Any, list[Any]] = {}
    for element in elements:
        pair = isinstance(element, list) and len(element) == 2
        keyed.setdefault(element[0] if pair else None, []).append(element)
    return keyed


@pytest.mark.parametrize("case", [case for case in of_kind("operators") if case.id == PEEK])
def test_peek_sees_every_value(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    seen = results(lambda s, i: i[""].peek(lambda x: print("saw", x)), {"": ["a"]})
    assert (seen, capsys.readouterr().out) == (["a"], "saw a\n")


_PREDICATES: dict[str, Callable[[int], Any]] = {
    "even": lambda key: key % 2 == 0,
    "key even": lambda key: key % 2 == 0,
    "negative": lambda key: key < 0,
    **{
        f"{prefix}multiple of {n}": lambda key, n=n: key % n == 0  # type: ignore[misc]
        for prefix in ("", "key ")
        for n in (3, 5, 7)
    },
}


@pytest.mark.parametrize("case", of_kind("branch"))
def test_branch(case: Case) -> None:
    rows = [(step["key"], step["in"]) for step in case["steps"] if "in" in step]
    predicates: dict[str, Callable[[Any], Any]] = {}
    outputs: dict[str, list[str]] = {}
    default = None
    for number, (name, what) in enumerate(case["settings"]["branches"]):
        branch = f"branch_{number}"
        outputs.setdefault(name or branch, []).append(branch)
        if what == "default":
            default = branch
        else:
            predicates[branch] = lambda row, holds=_PREDICATES[what]: holds(row[0])  # type: ignore[misc]
    for step in case["steps"]:
        if "out" not in step:
            continue

        def write(s: StreamBuilder, i: dict[str, Stream[Any]], of: str = step["of"]) -> Stream[Any]:
            branches = i[""].branch(default=default, **predicates)
            return s.merge(*[branches[name] for name in outputs[of]]).map(lambda row: row[1])

        assert sorted(results(write, {"": rows})) == sorted(step["out"])


# -- Trident ---------------------------------------------------------------------------------------


def words_of(stream: Stream[Any]) -> Stream[Any]:
    return stream.flat_map(str.split)


class Rows(Spout):
    """Emits the rows of a batch, with the number of the partition that each is of."""

    def __init__(self, batch: dict[str, Any]) -> None:
        self.outputs = ("partition", *batch["fields"])
        partitions = batch.get("partitions") or [batch["rows"]]
        self.left = [[number, *row] for number, rows in enumerate(partitions) for row in rows]

    def next_tuple(self) -> None:
        if self.left:
            self.emit(self.left.pop(0), msg_id=len(self.left))

    def is_exhausted(self) -> bool:
        return not self.left


def joined(s: StreamBuilder, batch: dict[str, Any]) -> Stream[Any]:
    one, other = (
        s.stream(Items(batch[name])).key_by(lambda row: row[0]).map_values(lambda row: row[1:])
        for name in ("s1", "s2")
    )
    return one.join(other, window=Global()).map(lambda pair: [pair[0], *pair[1][0], *pair[1][1]])


TRIDENT: dict[str, Callable[[StreamBuilder, Any], Stream[Any]]] = {
    "each(split).aggregate(count)": lambda s, batch: (
        words_of(s.stream(Items(batch))).repartition(2).count().map(lambda n: [n])
    ),
    "each(split).local_or_shuffle.shuffle.aggregate(count)": lambda s, batch: (
        words_of(s.stream(Items(batch))).repartition(1).repartition(2).count().map(lambda n: [n])
    ),
    "merge(split words, length of the whole)": lambda s, batch: (
        lambda whole: s.merge(words_of(whole), whole.map(len))
    )(s.stream(Items(batch))).map(lambda element: [element]),
    "partition_aggregate(b, sum)": lambda s, batch: (
        s.stream(Rows(batch)).key_by("partition").aggregate(Sum("b")).at_end().map(lambda r: [r[1]])
    ),
    "max_by(count)": lambda s, batch: (
        s.stream(Rows(batch))
        .key_by("partition")
        .max("count")
        .at_end()
        .map(lambda r: list(r[1][1:]))
    ),
    "filter(a == 1 and b == 2)": lambda s, batch: (
        s.stream(Rows(batch)).filter(lambda r: r.a == 1 and r.b == 2).map(lambda r: list(r)[1:])
    ),
    "each(b, emits 0..b-1, d)": lambda s, batch: s.stream(Rows(batch)).flat_map(
        lambda r: [[*list(r)[1:], d] for d in range(r.b)]
    ),
    "join(s1 by key, s2 by x, fields key a b c)": joined,
}


@pytest.mark.parametrize("case", of_kind("trident"))
def test_trident(case: Case) -> None:
    """An empty batch gives the zero; a batch of parts comes in parts, whose zeros add up."""
    builder = StreamBuilder()
    batch, expected = case["steps"][0]["batch"], case["steps"][1]["out"]
    program = case["settings"]["program"]
    TRIDENT[program](builder, batch).to(Sink(), name="sink")
    found = [row[0] for row in complete_topology(builder.build()).tuples("sink")]
    if "aggregate(count)" in program:
        found = [[sum(count for (count,) in found)]]
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("case", of_kind("trident-state"))
def test_trident_state(case: Case, restarts: bool) -> None:
    builder = StreamBuilder()
    lines, questions = FeederSpout(["line"]), FeederSpout(["words"])
    totals = builder.stream(lines).flat_map(str.split).key_by().persistent_aggregate(Count())
    totals.named("totals").updates().to(Sink(), name="updates")
    answers = builder.stream(questions).flat_map(str.split).key_by().state_query(totals)
    answers.to(Sink(), name="answers")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.build(), {})
        for step in case["steps"]:
            heard = len(run.tuples("answers"))
            for line in step.get("batch", []):
                lines.feed([line], msg_id=line)
            if "query" not in step:
                run.settle()
                if restarts:
                    run.restart()
                continue
            if step["query"] == "all":
                latest = {row[0][0]: row[0][1] for row in run.tuples("updates")}
                assert sorted(latest.items()) == sorted(map(tuple, step["out"]))
                continue
            questions.feed([step["query"]], msg_id=1)
            run.settle()
            counts = [row[0][1] or 0 for row in run.tuples("answers")[heard:]]
            assert [[sum(counts)]] == step["out"]


# -- state outside ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", of_kind("opaque"))
def test_opaque_values(case: Case) -> None:
    stored = OpaqueValue(**case["settings"]["stored"])
    for step in case["steps"]:
        if "get_at" in step:
            _expect(step["out"][0], lambda at=step["get_at"]: stored.get(at))  # type: ignore[misc]
            continue
        txid = step["update_at"]
        value = step["with"] if "with" in step else stored.get(txid) + step["by"]
        updated = vars(stored.update(txid, value))
        assert {name: updated[name] for name in step["out"][0]} == step["out"][0]


def _expect(out: Any, call: Callable[[], Any]) -> None:
    if isinstance(out, dict) and "error" in out:
        with pytest.raises(ValueError, match="the checkpoint is older than the store"):
            call()
    else:
        assert call() == out


@pytest.mark.parametrize("case", [*of_kind("opaque-map"), *of_kind("transactional-map")])
def test_maps_that_survive_a_batch_that_runs_again(case: Case) -> None:
    store = MemoryStore()
    state: Any = Opaque(store) if case["kind"] == "opaque-map" else Transactional(store)
    if "stored" in case["settings"]:
        store.values = {key: tuple(value) for key, value in case["settings"]["stored"].items()}
    for step in case["steps"]:
        if "begin" in step:
            state.begin_commit(step["begin"])
        elif "commit" in step:
            state.commit(step["commit"])
        elif "get" in step:
            assert state.multi_get([step["get"]]) == step["out"]
        elif "put" in step:
            state.multi_put(step["put"])
        elif "remove" in step:
            state.remove([step["remove"]])
        elif "add" in step:
            assert state.multi_update(["a"], _adding(step["add"])) == step["out"]
        elif "batch" in step:
            counts = Counter(step["batch"])
            for word, amount in counts.items():
                state.multi_update([word], _adding(amount))
        else:
            assert [{key: list(value) for key, value in store.values.items()}] == step["out"]


def _adding(amount: int) -> Callable[[Any, Any], Any]:
    return lambda key, before: (before or 0) + amount


# -- plans -----------------------------------------------------------------------------------------


class Pairs(Spout):
    outputs = ("a", "b")

    def next_tuple(self) -> None: ...


TEN = Tumbling(timedelta(seconds=10))
PLANS: dict[str, Callable[[Stream[Any]], Any]] = {
    "branch": lambda s: s.branch(all=lambda pair: True)["all"].print(),
    "a global aggregate": lambda s: s.aggregate(Count()).print(),
    "group by key in a window": lambda s: s.key_by("a").window(TEN).count().print(),
    "the same key twice needs one exchange": lambda s: (
        s.key_by("a").reduce(max).map_values(str).filter(bool).reduce(max).print()
    ),
    "the same key, but another parallelism": lambda s: (
        s.key_by("a").aggregate(Count()).aggregate(Count(), parallelism=10).print()
    ),
    "branch and join": lambda s: _joined(s.branch(even=lambda pair: True, default="odd")),
}


def _joined(branches: dict[str, Stream[Any]]) -> None:
    even, odd = (stream.key_by("a") for stream in branches.values())
    even.join(odd, window=TEN).print()


@pytest.mark.parametrize("case", [case for case in of_kind("plan") if case.id in PLANS])
def test_plans_have_no_more_exchanges_than_storms(case: Case) -> None:
    """Storm makes a bolt of what lies before an exchange, and one of what lies behind it."""
    (expected,) = case["steps"][0]["out"]
    builder = StreamBuilder()
    PLANS[case["name"]](builder.stream(Pairs(), parallelism=2))
    plan = make_plan(builder.build(), slots=2)
    assert len(plan.levels) - 1 == expected["bolts"] - 1


@pytest.mark.parametrize("case", [case for case in of_kind("plan") if case.id == "to a bolt"])
def test_a_bolt_behind_a_spout_reads_the_spout(case: Case) -> None:
    builder = StreamBuilder()
    builder.stream(Pairs()).to(Sink(), name="sink")
    topology = builder.build()
    assert list(topology.components) == ["sink", "stream_1"]
    assert [str(read.grouping) for read in topology.component("sink").inputs] == ["shuffle"]


REFUSED: dict[str, Callable[[Stream[Any]], Any]] = {
    "group_by": lambda s: s.group_by("c"),
    "aggregate after group_by": lambda s: s.group_by("a").aggregate(Sum("c")),
    "partition_by": lambda s: s.filter(print).key_by("c"),
    "persistent_aggregate": lambda s: s.key_by("a").persistent_aggregate(Sum("c")),
    "partition_aggregate": lambda s: s.aggregate(Sum("c")),
}
ALSO_REFUSED: dict[str, Callable[[Stream[Any]], Any]] = {
    "a window's aggregate": lambda s: s.key_by("a").window(TEN).aggregate(Sum("c")),
    "one of a window's aggregates": lambda s: s.window(TEN).aggregate(n=Count(), sum=Sum("c")),
    "the highest of a window": lambda s: s.key_by("a").window(TEN).top(3, by="c"),
    "a time": lambda s: s.times("c"),
}
_UNKNOWN = re.compile("an unknown field in (.+) is refused when it is written")


def refused_in(case: Any) -> str:
    """Return the operator of a case that refuses an unknown field."""
    match = _UNKNOWN.fullmatch(case.id)
    return match[1] if match else ""


@pytest.mark.parametrize("case", [case for case in of_kind("plan") if refused_in(case) in REFUSED])
def test_an_unknown_field_is_refused_when_it_is_written(case: Case) -> None:
    _refuses(REFUSED[_UNKNOWN.sub(r"\1", case["name"])])


@pytest.mark.parametrize("write", ALSO_REFUSED.values(), ids=ALSO_REFUSED)
def test_an_unknown_field_is_refused_there_too(write: Callable[[Stream[Any]], Any]) -> None:
    _refuses(write)


def _refuses(write: Callable[[Stream[Any]], Any]) -> None:
    stream = StreamBuilder().stream(Pairs())
    with pytest.raises(StreamError, match="reads 'c', and its elements have 'a', 'b'"):
        write(stream)


def test_parts_of_what_a_function_made_are_not_known() -> None:
    builder = StreamBuilder()
    stream = builder.stream(Pairs())
    stream.map(lambda pair: {"c": pair.a}).key_by("c").count().print()
    stream.key_by("a").map_values(lambda pair: {"c": pair.b}).max(by="c").print()
    builder.build()


# -- bolts -----------------------------------------------------------------------------------------


def test_a_filter_emits_anchored_and_acks_once() -> None:
    builder = StreamBuilder()
    feed = FeederSpout(["n"])
    builder.stream(feed).filter(lambda n: True).to(Sink(), name="sink")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.build(), {})
        feed.feed([100], msg_id="m")
        run.settle()
        assert (run.tuples("sink"), feed.acked) == ([[100]], ["m"])


def test_the_time_goes_along() -> None:
    builder = StreamBuilder()
    feed = FeederSpout(["n", "ts"])
    kept = builder.stream(feed, time=EventTime("ts")).map(lambda row: row.n).filter(lambda n: True)
    kept.named("kept").to(Sink(), name="sink")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.build(), {})
        feed.feed([100, 12345])
        run.settle()
        assert run.tuples("kept") == [[100, 12345]]


def test_state_by_key() -> None:
    found = results(
        lambda s, i: i[""].key_by(lambda v: "k").update_state_by_key(0, lambda n, v: n + 1),
        {"": ["v"]},
    )
    assert found == [["k", 1]]


def test_a_window_of_three_is_counted() -> None:
    found = results(
        lambda s, i: i[""].window(TEN).count().map(lambda pair: pair[1]), {"": [100, 100, 100]}
    )
    assert found == [3]


# -- several inputs, and rows that go --------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("case", of_kind("cogroup-aggregate"))
def test_two_inputs_are_aggregated_together(case: Case, restarts: bool) -> None:
    builder = StreamBuilder()
    feeds = {number: FeederSpout(["key", "value", "ts"]) for number in (1, 2)}
    time = EventTime("ts", idle=None, lag=1000)
    inputs = [
        builder.stream(feed, time=time).key_by("key").map_values(lambda row: row.value)
        for feed in feeds.values()
    ]
    builder.merge(*inputs).fold("", lambda text, value: text + value).named("text").to(  # type: ignore[attr-defined]
        Sink(), name="sink"
    )
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.build(), {})
        for step in case["steps"]:
            if "in" in step:
                feeds[step["from"]].feed([step["key"], step["in"], step["ts"]])
                run.settle()
                if restarts:
                    run.restart()
        (expected,) = [step["out"] for step in case["steps"] if "out" in step]
        found = [dict(zip(("key", "value", "ts"), row, strict=True)) for row in run.tuples("text")]
        assert found == expected


@pytest.mark.parametrize("case", of_kind("local-global"))
def test_a_row_that_never_was_takes_nothing_away(case: Case) -> None:
    builder = StreamBuilder()
    feed = FeederSpout(["id", "group", "n"])
    rows = builder.stream(feed).map(lambda r: (r.id, None if r.n is None else (r.group, r.n)))
    sums = rows.pairs().to_table().group_by(lambda key, row: row[0])
    sums.aggregate(Sum(lambda row: row[1])).to_stream().to(Sink(), name="sink")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.build(), {})
        for number, step in enumerate(case["steps"]):
            if "op" in step:
                value = None if step["op"] == "-D" else step["in"]
                feed.feed([number, step["key"], value])
        run.settle()
        (expected,) = [step["out"] for step in case["steps"] if "out" in step]
        wanted = [[out["key"], out["value"]] for out in expected]
        assert sorted(row[0] for row in run.tuples("sink")) == sorted(wanted)


# -- windows of storm-starter and Trident ----------------------------------------------------------


@pytest.mark.parametrize("case", of_kind("panes-count"))
def test_rolling_counts(case: Case) -> None:
    """A slot is a millisecond; a window without a value is not reported, which counts as 0."""
    slots = case["settings"]["slots"]
    builder = TopologyBuilder()
    feed = FeederSpout(["n", "ts"])
    builder.set_spout("adds", feed)
    window = Sliding(timedelta(milliseconds=slots), timedelta(milliseconds=1))
    counts = WindowAggregate(window=window, time=EventTime("ts"), aggregates={"n": Sum("n")})
    builder.set_bolt("counts", counts).global_grouping("adds")
    now = 0
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology(), {})
        for step in case["steps"]:
            if step.get("add"):
                feed.feed([step["add"], now])
            elif "advance" in step:
                now += 1
                feed.feed([0, now])
                run.settle()
            elif "out" in step:
                sums = {end: n for _, end, n in run.tuples("counts")}
                assert [sums.get(now, 0)] == step["out"]


@pytest.mark.parametrize("case", of_kind("window-config"))
def test_window_configurations(case: Case) -> None:
    kind, length, slide = case["settings"]["args"]
    (expected,) = case["steps"][0]["out"]
    secs = kind == "time"
    args = [timedelta(seconds=n) if secs else n for n in (length, slide)]
    bolt = WindowedBolt().with_window(*args)
    unit: Any = timedelta(milliseconds=1) if secs else 1
    assert [bolt.length, bolt.slide] == [expected["length"] * unit, expected["slide"] * unit]


@pytest.mark.parametrize("case", of_kind("lookup-cache"))
def test_a_lookup_is_asked_again_after_its_time(case: Case, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.execute("create table t (k text, v int)")
        feed = FeederSpout(["k"])
        builder = TopologyBuilder()
        builder.set_spout("keys", feed)
        ttl = case["settings"]["ttl"]
        lookup = SqlLookupBolt(
            f"sqlite:///{tmp_path}/db", "t", key="k", columns="v", fields="k", cache_secs=ttl
        )
        builder.set_bolt("lookup", lookup).global_grouping("keys")
        now = 0
        with TestCluster() as cluster:
            run = cluster.submit_topology("t", builder.create_topology(), {})
            for step in case["steps"]:
                if "now" in step:
                    cluster.advance(step["now"] - now)
                    now = step["now"]
                elif "in" in step:
                    database.execute("delete from t")
                    database.executemany("insert into t values (?, ?)", step["table"].items())
                    database.commit()
                    feed.feed([step["in"]])
                    run.settle()
                else:
                    expected = step["out"]
                    assert [v for _, v in run.tuples("lookup")][-len(expected) :] == expected


def test_a_state_is_let_go_when_it_is_none() -> None:
    builder = StreamBuilder()
    feed = FeederSpout(["n"])
    keyed = builder.stream(feed).key_by(lambda n: "k")
    keyed.update_state_by_key(0, lambda state, n: None if n == 1 else state + n).to(
        Sink(), name="sink"
    )
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.build(), {})
        for number in (5, 1, 7):
            feed.feed([number])
            run.settle()
            run.restart()
        assert [row[0] for row in run.tuples("sink")] == [["k", 5], ["k", 7]]


OF_BOLTS = {
    "bolt: filter: emitted, anchored, acked once": test_a_filter_emits_anchored_and_acks_once,
    "bolt: the timestamp field goes along": test_the_time_goes_along,
    "bolt: state by key": test_state_by_key,
    "bolt: count in a window of three": test_a_window_of_three_is_counted,
    "process: state let go when None": test_a_state_is_let_go_when_it_is_none,
}
"""The cases with a test of their own."""

ELSEWHERE = {
    "an unknown field in project is refused when it is written": (
        "project is map, and what a function reads is not known when it is written"
    ),
}
"""The cases that have no runner, each with its reason."""


def test_no_case_is_left_out() -> None:
    """Every case that must hold has a runner here, or a reason."""
    run_here: set[str] = set(OF_BOLTS)
    for test in list(globals().values()):
        for mark in getattr(test, "pytestmark", ()):
            if mark.name == "parametrize" and mark.args[0] == "case":
                run_here.update(f"{c.values[0]['kind']}: {c.id}" for c in mark.args[1])
    must = {f"{c['kind']}: {c['name']}" for c in CASES if c["topo"] == "must"}
    elsewhere = {name for name in must if name.partition(": ")[2] in ELSEWHERE}
    assert len(elsewhere) == len(ELSEWHERE)
    assert must - run_here == elsewhere
    assert not run_here & elsewhere
