"""Every example does what its docstring says."""

from __future__ import annotations

import ast
import math
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from examples import (
    crawl,
    direct_and_custom,
    endless_word_count,
    exclaim,
    multilang_word_count,
    reach,
    reliable_spout,
    replayed_trades,
    rolling_average,
    skewed_words,
    streams_word_count,
    threads,
    totals_by_country,
    visits,
    word_count,
    word_queries,
)
from tests.property.scale import seeds
from topo import CustomStreamGrouping, TopologyBuilder
from topo.cli.target import load_target
from topo.testing import (
    CompletedTopology,
    FeederSpout,
    TestCluster,
    complete_topology,
    make_tuple,
    run_bolt,
    run_spout,
)

EXAMPLES = Path(word_count.__file__).parent
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_a_target_of_the_command_line(name: str) -> None:
    target = load_target(str(EXAMPLES / f"{name}.py"))
    assert target.topology.spouts
    assert target.topology.warnings == ()


# -- multilang_word_count --------------------------------------------------------------------------


def test_a_process_of_another_language_splits_the_sentences() -> None:
    check_multilang(complete_topology(multilang_word_count.topology))


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_process_of_node_splits_the_sentences() -> None:
    check_multilang(complete_topology(multilang_word_count.with_node()))


def check_multilang(result: CompletedTopology) -> None:
    words = " ".join(multilang_word_count.SENTENCES * 20).split()
    counts: Counter[str] = Counter()
    for word, count in result.tuples("count"):
        counts[word] = max(count, counts[word])
    assert counts == Counter(words)
    assert len(result.acked["sentences"]) == len(multilang_word_count.SENTENCES) * 20


# -- word_count ------------------------------------------------------------------------------------


def counted(text: bytes) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.decode().lower()))


def test_word_count_counts_its_text_and_prints_the_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = complete_topology(word_count.topology())
    assert dict(result.tuples("count")) == counted(word_count.TEXT)
    assert len(result.acked["lines"]) == len(word_count.TEXT.splitlines())
    assert capsys.readouterr().out.split()[:4] == ["4", "the", "2", "and"]


def test_word_count_counts_a_file(tmp_path: Path) -> None:
    text = "Die Kuh\n\nund die Kühe\n".encode()
    (tmp_path / "cows.txt").write_bytes(text)
    target = load_target(str(EXAMPLES / "word_count.py"), [str(tmp_path / "cows.txt")])
    assert dict(complete_topology(target.topology).tuples("count")) == counted(text)


def test_word_count_loses_and_doubles_nothing_over_restarts() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("words", word_count.topology())
        for _ in word_count.TEXT.splitlines():
            run.step()
            run.restart()
        run.settle()
        assert dict(run.tuples("count")) == counted(word_count.TEXT)
        assert run.status == "COMPLETED"


# -- endless_word_count ----------------------------------------------------------------------------


def test_endless_word_count_stays_within_its_pending_limit() -> None:
    topology = endless_word_count.topology("50")
    conf = {**endless_word_count.conf, "topology.max.spout.pending": 3}
    with TestCluster() as cluster:
        run = cluster.submit_topology("words", topology, conf)
        run.step(n=100)
        words = run.tuples("words")
        assert len(words) == 2 * 3  # two spout tasks; what was emitted is acked in the next batch
        run.step(n=100)
        assert len(run.tuples("words")) == 2 * len(words)


def test_endless_word_count_keeps_its_counts_in_keyed_state() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("words", endless_word_count.topology("50"))
        run.step(n=50)
        run.restart()
        run.step(n=50)
        counts: dict[str, int] = {}
        for word, count in run.tuples("count"):
            counts[word] = max(count, counts.get(word, 0))
        assert counts == Counter(word for (word,) in run.tuples("words"))


# -- reliable_spout --------------------------------------------------------------------------------


def test_failed_orders_are_sent_again_and_given_up_after_three_attempts() -> None:
    result = complete_topology(reliable_spout.topology())
    shipped = dict(result.tuples("ship"))
    assert set(shipped) == set(reliable_spout.ORDERS) - {"order-13"}
    assert {order for order, attempt in shipped.items() if attempt == 2} == {
        "order-5",
        "order-10",
        "order-15",
        "order-20",
    }
    assert result.failed["orders"].count("order-13") == 3
    assert result.tuples("orders", "rejected") == [
        ["order-13", "failed by 'ship' task 4: no such address"]
    ]


def test_an_order_that_timed_out_is_sent_again_after_its_pause() -> None:
    run = run_spout(reliable_spout.Orders(["a"], pause_secs=0))
    run.next()
    run.fail("a", "timeout after 30 s")
    run.next()
    assert run.emitted == [["a", 1], ["a", 2]]
    run.ack("a")
    run.next()
    assert len(run.emitted) == 2
    assert run.spout.is_exhausted()


def test_the_orders_on_their_way_survive_a_restart() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("orders", reliable_spout.topology())
        run.step(n=20)
        run.restart()
        cluster.advance(secs=1)  # the second attempts
        cluster.advance(secs=1)  # the third
        assert len(run.tuples("ship")) == 19
        assert run.status == "COMPLETED"


# -- replayed_trades -------------------------------------------------------------------------------


def test_a_minute_of_trades_comes_in_a_second() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", replayed_trades.topology("60"))
        cluster.advance(1)
        assert len(run.tuples("trades")) in (12, 13)
        for _ in range(9):
            cluster.advance(1)
        assert run.status == "COMPLETED"
        rows = replayed_trades.trades(60)
        first = [row["price"] for row in rows[:12] if row["symbol"] == "A"]
        means = run.tuples("means")
        assert len(means) == 10  # five minutes of two symbols
        assert any(math.isclose(row[-1], sum(first) / len(first)) for row in means)


# -- rolling_average -------------------------------------------------------------------------------


def test_the_average_is_of_the_last_minute_and_comes_with_every_tick() -> None:
    feeder = FeederSpout(("sensor", "value"))
    builder = TopologyBuilder()
    builder.set_spout("sensors", feeder)
    builder.set_bolt("average", rolling_average.Average()).global_grouping("sensors")
    with TestCluster() as cluster:
        run = cluster.submit_topology("averages", builder.create_topology())
        cluster.advance(secs=5)
        feeder.feed(["kitchen", 20.0])
        cluster.advance(secs=40)
        feeder.feed(["kitchen", 30.0])
        run.settle()
        assert run.tuples("average") == [["kitchen", 20.0, 1]] * 4
        cluster.advance(secs=15)  # the ticks at 50 and 60
        assert run.tuples("average")[4:] == [["kitchen", 25.0, 2]] * 2
        cluster.advance(secs=10)  # at 70 the first reading is older than a minute
        assert run.tuples("average")[6:] == [["kitchen", 30.0, 1]]
        cluster.advance(secs=100)  # until 100, when there is nothing left to say
        assert run.tuples("average")[7:] == [["kitchen", 30.0, 1]] * 3


def test_the_sensors_are_read_once_a_second() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("averages", rolling_average.topology("2"))
        for _ in range(10):
            cluster.advance(secs=1)
        readings = Counter(sensor for sensor, _ in run.tuples("sensors"))
        assert readings == {"sensor-0": 11, "sensor-1": 11}
        (first, second) = sorted(run.tuples("average"))
        assert second[0] == "sensor-1"
        assert math.isclose(second[1], first[1] + 1)


# -- direct_and_custom -----------------------------------------------------------------------------


def test_each_parcel_goes_to_the_van_with_the_least_weight() -> None:
    result = complete_topology(direct_and_custom.topology())
    vans = {parcel: van for parcel, van, _ in result.tuples("load")}
    assert vans == {"anvil": 0, "books": 1, "lamp": 1, "rug": 1, "sofa": 1, "violin": 0}
    assert result.acked["parcels"] == list(range(len(direct_and_custom.PARCELS)))


def test_each_parcel_is_booked_by_the_clerk_of_its_letter() -> None:
    result = complete_topology(direct_and_custom.topology())
    clerks = dict(result.tuples("account"))
    assert clerks == {"anvil": 0, "books": 0, "lamp": 0, "rug": 1, "sofa": 1, "violin": 1}


def test_the_alphabet_is_shared_out_evenly() -> None:
    grouping: CustomStreamGrouping = direct_and_custom.ByFirstLetter()
    grouping.prepare(context=None, stream=("load", "default"), target_tasks=[7, 8])  # type: ignore[arg-type]
    chosen = [grouping.choose_tasks(1, [letter]) for letter in "amnz"]
    assert chosen == [[7], [7], [8], [8]]


def test_a_bolt_of_an_example_can_be_tested_by_itself() -> None:
    result = run_bolt(word_count.split, [make_tuple({"line": "The cow, the moon"})])
    assert result.emitted == [["the"], ["cow"], ["the"], ["moon"]]


# -- streams_word_count ----------------------------------------------------------------------------


def test_streams_word_count_prints_both_counts_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    complete_topology(streams_word_count.topology())
    printed = [line.partition(" ") for line in capsys.readouterr().out.splitlines()]
    words = counted(" ".join(streams_word_count.LINES).encode())
    lengths = Counter[int]()
    for word, count in words.items():
        if len(word) > 4:
            lengths[len(word)] += count
    found = {kind: {ast.literal_eval(pair) for k, _, pair in printed if k == kind}
             for kind in ("word", "length")}  # fmt: skip
    assert found == {"word": set(words.items()), "length": set(lengths.items())}


# -- skewed_words ----------------------------------------------------------------------------------


def test_the_frequent_word_is_counted_by_two_tasks_in_equal_parts() -> None:
    result = complete_topology(skewed_words.topology())
    parts = [count for word, count in result.tuples("count") if word == "the"]
    assert sum(parts) == skewed_words.WORDS.count("the")
    assert len(parts) == 2
    assert min(parts) > 0.4 * sum(parts)


def test_the_totals_of_skewed_words_are_exact_over_restarts() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("words", skewed_words.topology())
        while run.status != "COMPLETED":
            run.step(n=100)
            run.restart()
            cluster.advance(secs=1)
        totals: dict[str, int] = {}
        for word, count in run.tuples("total"):
            totals[word] = max(count, totals.get(word, 0))
        assert totals == Counter(skewed_words.WORDS)


# -- threads ---------------------------------------------------------------------------------------


def test_what_threads_find_is_emitted_and_what_they_do_not_find_fails() -> None:
    result = complete_topology(threads.topology())
    known = [address for address in threads.ADDRESSES if threads.country_of(address)]
    looked_up = result.tuples("looked_up")
    assert sorted(looked_up) == sorted([a, threads.country_of(a)] for a in known)
    assert len(result.acked["addresses"]) == len(known)
    assert len(result.failed["addresses"]) == len(threads.ADDRESSES) - len(known)


# -- totals_by_country -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(3))
def test_totals_by_country_move_with_the_customer(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with TestCluster(seed=seed) as cluster:
        run = cluster.submit_topology("totals", totals_by_country.topology())
        while run.status != "COMPLETED":
            run.step()
            run.restart()
            run.settle()
    printed = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    totals = dict(map(ast.literal_eval, printed))
    homes = dict(totals_by_country.CUSTOMERS)
    wanted = Counter[str]()
    for customer, amount in totals_by_country.ORDERS:
        wanted[homes[customer]] += amount
    assert totals == dict(wanted)


# -- visits ----------------------------------------------------------------------------------------


def test_every_visit_ends_once_and_with_the_pages_that_were_seen() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("visits", visits.topology())
        for second in range(200):
            cluster.advance(secs=1)
            if second % 7 == 0:
                run.restart()
        pages = Counter(user for user, _ in run.tuples("clicks"))
        ended = Counter[str]()
        for user, what, count in run.tuples("visits"):
            if what != "remind":
                ended[user] += count
        still = run.stats().components["visits"].state_rows
        assert {what for _, what, _ in run.tuples("visits")} == {"remind", "bought", "left"}
        assert sum(pages.values()) - sum(ended.values()) >= still
        assert all(ended[user] <= pages[user] for user in pages)


# -- crawl -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("seed", seeds(3))
def test_a_crawl_fetches_every_page_once_and_comes_to_an_end(seed: int, restarts: bool) -> None:
    with TestCluster(seed) as cluster:
        run = cluster.submit_topology("crawl", crawl.topology())
        while run.step():
            if restarts and run.status == "ACTIVE":
                run.restart()
        assert sorted(page for page, _ in run.tuples("fetch")) == sorted(crawl.WEB)
        assert run.status == "COMPLETED"
        assert run.stats().components["seeds"].acked == 2


# -- reach and exclaim -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "people"),
    [("foo.com/blog/1", "16"), ("engineering.twitter.com/blog/5", "14"), ("notaurl.com", "0")],
)
def test_reach_counts_each_follower_once(page: str, people: str) -> None:
    with TestCluster(seed=3) as cluster:
        run = cluster.submit_topology("reach", reach.topology())
        assert run.call("reach", page) == people


def test_exclaim_answers_by_both_wirings() -> None:
    for topology, answer in ((exclaim.topology(), "hello!"), (exclaim.by_hand(), "hello!!!")):
        with TestCluster() as cluster:
            assert cluster.submit_topology("e", topology).call("exclaim", "hello") == answer


def test_word_queries_are_of_what_was_counted_so_far() -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("words", word_queries.topology())
        assert run.call("words", "cow nobody") == "[[1]]"
        for _ in range(80):  # sentences, twenty a second
            cluster.advance(0.05)
        text = " ".join(sentence for (sentence,) in run.tuples("stream_1"))
        assert run.call("words", "the nobody cow") in {
            f"[[{text.split().count('the') + text.split().count('cow') + more}]]"
            for more in (0, 3)  # a sentence that comes with the call
        }
