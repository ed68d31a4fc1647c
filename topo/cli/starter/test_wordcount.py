from wordcount import LINES, Count, split, topology

from topo.testing import complete_topology, make_tuple, run_bolt


def test_split():
    result = run_bolt(split, [make_tuple({"sentence": "the cow"})])
    assert result.emitted == [["the"], ["cow"]]


def test_count():
    result = run_bolt(Count(), [make_tuple({"word": word}) for word in ("the", "cow", "the")])
    assert result.emitted == [["the", 1], ["cow", 1], ["the", 2]]


def test_the_whole_topology():
    result = complete_topology(topology("2"))
    counts = dict(result.tuples("count"))  # the last count of a word wins
    assert counts["the"] == 2 * sum(line.split().count("the") for line in LINES)
    assert result.failed["sentences"] == []
