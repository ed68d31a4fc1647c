"""The cases of streams of requests: programs that a case names in words, with several seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import add
from typing import Any

import pytest

from examples.reach import FOLLOWERS, TWEETERS
from tests.cases import Case
from tests.parity.areas import Runner, parameters
from tests.property.scale import seeds
from topo import Count
from topo.errors import StreamError
from topo.streams import StreamBuilder
from topo.testing import FeederSpout, TestCluster

Program = Callable[[StreamBuilder, FeederSpout], Any]


def words_of(sentence: str) -> list[str]:
    return sentence.split()


def counts(s: StreamBuilder, feeder: FeederSpout) -> Any:
    words = s.stream(feeder).flat_map(words_of).key_by()
    return words.persistent_aggregate(Count(), parallelism=2)


def summed_counts(s: StreamBuilder, feeder: FeederSpout) -> Any:
    asked = s.requests("f", parallelism=2).flat_map(words_of).key_by()
    return asked.state_query(counts(s, feeder)).values()


def is_there(count: Any) -> bool:
    return count is not None


def counted_words(s: StreamBuilder, feeder: FeederSpout) -> Any:
    s.stream(feeder).print()
    return s.requests("f").flat_map(words_of).count(parallelism=2)


def grouped_twice(s: StreamBuilder, feeder: FeederSpout) -> Any:
    s.stream(feeder).print()
    requests = s.requests("f")
    return requests.key_by().count(parallelism=2).merge(requests.key_by().count())


def dealt_twice(s: StreamBuilder, feeder: FeederSpout) -> Any:
    s.stream(feeder).print()
    words = s.requests("f").flat_map(words_of)
    return words.repartition(2).repartition(3).count()


def reach(s: StreamBuilder, feeder: FeederSpout) -> Any:
    s.stream(feeder).print()
    tweeters = s.requests("f").flat_map(lambda page: TWEETERS.get(page, [])).repartition(3)
    followers = tweeters.flat_map(lambda tweeter: FOLLOWERS.get(tweeter, []))
    once = followers.key_by().reduce(lambda first, _: first, parallelism=3)
    return once.keys().count(parallelism=2)


PROGRAMS: dict[str, Program] = {
    "requests -> words of args -> group by word -> ask the counts -> sum": (
        lambda s, feeder: summed_counts(s, feeder).fold(0, add, parallelism=2)
    ),
    "requests -> words of args -> group by word -> ask the counts -> leave out nulls -> sum": (
        lambda s, feeder: summed_counts(s, feeder).filter(is_there).fold(0, add)
    ),
    "requests -> words of args -> count": counted_words,
    "group by args and count, twice, merged": grouped_twice,
    "words of args -> local or shuffle -> shuffle -> count": dealt_twice,
    "requests -> tweeters -> followers -> group by follower, one each -> count": reach,
}


def run_requests(case: Case, seed: int = 0, restarts: bool = False) -> None:
    feeder = FeederSpout(["sentence"])
    s = StreamBuilder()
    PROGRAMS[case["settings"]["program"]](s, feeder).answer(parallelism=2)
    with TestCluster(seed) as cluster:
        run: Any = cluster.submit_topology("t", s.build())
        for step in case["steps"]:
            match step:
                case {"feed": sentences}:
                    for sentence in sentences:
                        feeder.feed([sentence])
                    run.settle()
                case {"call": args, "answer": answer}:
                    found = json.loads(run.call("f", args))
                    assert sorted(found) == sorted(answer)
                case {"calls at once": all_args, "answers": answers}:
                    run.call("f", "")  # the tasks are there
                    ids = [run.desk.begin("f", args, 60) for args in all_args]
                    run.settle()
                    ends = [run.desk.take_end(id) for id in ids]
                    assert [json.loads(end.value()) for end in ends] == answers
                case _:
                    raise AssertionError(f"nobody knows the step {step}")
            if restarts:
                run.restart()


RUNNERS: dict[str, Runner] = {"requests": run_requests}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("case", parameters(RUNNERS))
def test_requests(case: Case, seed: int, restarts: bool) -> None:
    run_requests(case, seed, restarts)


def test_operators_of_a_request() -> None:
    s = StreamBuilder()
    numbers = s.requests("numbers").flat_map(words_of).map(int).peek(lambda n: None)
    parts = numbers.branch(even=lambda n: n % 2 == 0, default="odd")
    keyed = numbers.key_by(lambda n: n % 3)
    results: list[Any] = [
        parts["even"].reduce(max),
        parts["odd"].filter_map(lambda n: n if n > 3 else None).count(),
        keyed.min().filter(lambda pair: pair[0] == 1).values(),
        keyed.max().map_values(lambda n: -n).keys(),
        keyed.top(1).values(),
        keyed.collect().values(),
        keyed.fold(list, lambda seen, n: [*seen, n]).values(),
    ]
    merged: Any = results[0].map(lambda value: ("0", value))
    for number, result in enumerate(results[1:], 1):
        named = result.map(lambda value, number=number: (str(number), value))
        merged = merged.merge(named)
    merged.answer()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", s.build())
        answer = json.loads(run.call("numbers", "1 2 3 4 5 7"))
    by_number: dict[str, list[Any]] = {}
    for number, value in answer:
        by_number.setdefault(number, []).append(value)
    assert by_number["0"] == [4]
    assert by_number["1"] == [2]
    assert by_number["2"] == [1]
    assert sorted(by_number["3"]) == [0, 1, 2]
    assert sorted(by_number["5"]) == [[1, 4, 7], [2, 5], [3]]
    assert sorted(by_number["6"]) == [[1, 4, 7], [2, 5], [3]]
    assert len(by_number["4"]) == 3


def test_what_has_no_end_is_refused_behind_requests() -> None:
    s = StreamBuilder()
    with pytest.raises(StreamError, match="window is not to be had behind requests"):
        s.requests("f").window(None)
    with pytest.raises(StreamError, match="of other requests"):
        s.requests("g").merge(s.requests("h"))
    with pytest.raises(AttributeError, match="no attribute 'mpa'"):
        s.requests("i").mpa(str)
