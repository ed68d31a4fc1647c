"""Components of topo as children: by the protocol alone, and as children of topo itself."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.multilang.started import started
from tests.multilang.words_as_children import FAILED_WORD
from topo import BasicBolt, Spout, TopologyBuilder
from topo.connectors.spark import SparkSink
from topo.connectors.sql import SqlBolt
from topo.errors import RunError, ShellError, TargetError
from topo.multilang import ShellBolt, ShellSpout
from topo.multilang.child import component_named, main, run
from topo.testing import FeederSpout, complete_topology, make_tick, make_tuple, run_bolt, run_spout

ROOT = Path(__file__).parents[2]
MODULE = "tests.multilang.words_as_children"


def command(name: str, *args: str) -> list[str]:
    return [sys.executable, "-m", "topo.multilang", f"{MODULE}:{name}", *args]


def shell(name: str, *args: str, outputs: Any = ("word",)) -> ShellBolt:
    env = {"PYTHONPATH": str(ROOT)}
    return ShellBolt(command(name, *args), outputs, cwd=None, env=env)


def test_a_basic_bolt_counts_with_its_arguments() -> None:
    builder = TopologyBuilder()
    builder.set_spout("words", FeederSpout("word"))
    bolt = shell("Counts", '{"by": 10}', outputs=("word", "count"))
    builder.set_bolt("count", bolt).shuffle_grouping("words")
    words = [["a"], ["b"], ["a"], [FAILED_WORD]]
    result = complete_topology(builder.create_topology(), mock_sources={"words": words})
    assert result.tuples("count") == [["a", 10], ["b", 10], ["a", 20]]
    assert len(result.acked["words"]) == 3
    assert len(result.failed["words"]) == 1
    assert not started()


def test_a_rich_bolt_holds_until_its_batch_ends() -> None:
    bolt = shell("Joins")
    run = run_bolt(bolt, batches=[[make_tuple([word]) for word in "abc"]])
    try:
        assert run.emitted == [["a b c"]]
        assert run.pending == []
        run.batch([make_tick(5)])
        assert run.emitted[1:] == [["tick"], [""]]
        assert [list(emitted.anchors) for emitted in run.emitted[1:]] == [[], []]
    finally:
        bolt.cleanup()


class ByValues(BasicBolt):
    def process(self, word: str) -> None:
        """Do nothing."""


def test_bolts_that_take_columns_take_tuples_as_well_and_others_do_not() -> None:
    with Path(os.devnull).open("rb") as reader:
        run(SqlBolt("sqlite://", "t"), reader, io.BytesIO())  # to the end of the input
        for bolt in (ByValues(), SparkSink("csv", path="/x", schema="a int")):
            with pytest.raises(RunError, match="gets values"):
                run(bolt, reader, io.BytesIO())


def test_a_spout_hears_of_its_messages() -> None:
    spout = ShellSpout(command("Numbers"), ("n",), cwd=None, env={"PYTHONPATH": str(ROOT)})
    run = run_spout(spout, 0)
    try:
        while len(run.emitted) < 2:
            run.next()
        run.ack(run.emitted[0].msg_id)
        run.fail(run.emitted[1].msg_id)
        while len(run.emitted) < 5:
            run.next()
        assert [row[0] for row in run.emitted] == ["0", "1", "2", "acked 0", "failed 1"]
    finally:
        spout.close()


def test_an_exception_of_the_component_is_in_the_error() -> None:
    bolt = shell("Breaks")
    with pytest.raises(ShellError, match=r"(?s)ended with exit code 1.*ZeroDivisionError"):
        run_bolt(bolt, [make_tuple([0])])
    bolt.cleanup()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (MODULE, "names no class"),
        (f"{MODULE}:Count", "did you mean 'Counts'"),
        (f"{MODULE}:FailTuple", "neither spout nor bolt"),
    ],
)
def test_a_component_that_is_not_there(spec: str, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        component_named(spec)


def test_arguments_by_place() -> None:
    spout = component_named("topo.testing:FeederSpout", json.dumps(["word"]))
    assert isinstance(spout, Spout)


def test_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "MODULE:CLASS" in capsys.readouterr().err
