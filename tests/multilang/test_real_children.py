"""Components of pystorm, storm.py and storm.js, unchanged, where these are.

TOPO_PYSTORM is a Python that has pystorm, unless this one does. TOPO_MULTILANG is a directory with
`storm.py` and `storm.js`: what Storm's jars `multilang-python` and `multilang-javascript` have in
`resources/`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from topo import FromList, TopologyBuilder
from topo.multilang import ShellBolt, ShellSpout
from topo.testing import complete_topology, run_spout

pytestmark = pytest.mark.server

PYSTORM = os.environ.get("TOPO_PYSTORM", sys.executable)
MULTILANG = Path(os.environ.get("TOPO_MULTILANG", "."))
LINES = ["the cow jumped over the moon", "the dog"] * 50
PYSTORM_SPLIT = """
from pystorm import Bolt

class Split(Bolt):
    def process(self, tup):
        for word in tup.values[0].split():
            self.emit([word])

Split().run()
"""
PYSTORM_BATCHES = """
from pystorm import BatchingBolt

class Batches(BatchingBolt):
    ticks_between_batches = 1

    def group_key(self, tup):
        return tup.values[0].split()[0]

    def process_batch(self, key, tups):
        self.emit([f"{key} {len(tups)}"])

Batches().run()
"""
STORM_SPLIT = """
import storm

class Split(storm.BasicBolt):
    def process(self, tup):
        for word in tup.values[0].split():
            storm.emit([word])

Split().run()
"""
STORM_LINES = """
import storm

class Lines(storm.Spout):
    def initialize(self, conf, context):
        self.lines = ["one", "two"]

    def nextTuple(self):
        if self.lines:
            line = self.lines.pop(0)
            storm.emit([line], id=line)

    def fail(self, id):
        self.lines.append(id)

Lines().run()
"""
NODE_SPLIT = """
const { BasicBolt } = require('./storm');

class Split extends BasicBolt {
  process(tup, done) {
    const split = () => {
      for (const word of tup.values[0].split(' ')) {
        this.emit({ tuple: [word], anchorTupleId: tup.id }, () => {});
      }
      done();
    };
    LATER ? setTimeout(split, 50) : split();
  }
}

new Split().run();
"""


def write(directory: Path, name: str, code: str) -> Path:
    for library in ("storm.py", "storm.js"):
        if (MULTILANG / library).is_file():
            shutil.copy(MULTILANG / library, directory)
    (directory / name).write_text(code, encoding="utf-8")
    return directory


def needs_pystorm() -> None:
    command = [PYSTORM, "-c", "import pystorm"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("pystorm is not installed; TOPO_PYSTORM names a Python that has it")


def needs_multilang(library: str) -> None:
    if not (MULTILANG / library).is_file():
        pytest.skip(f"there is no {library}; TOPO_MULTILANG names a directory that has it")


def check_words(command: list[str], directory: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", FromList(LINES, fields="line"))
    bolt = ShellBolt(command, ("word",), cwd=directory)
    builder.set_bolt("split", bolt, 2).shuffle_grouping("lines")
    result: Any = complete_topology(builder.create_topology())
    assert Counter(row[0] for row in result.tuples("split")) == Counter(" ".join(LINES).split())
    assert len(result.acked["lines"]) == len(LINES)


def test_a_bolt_of_pystorm(tmp_path: Path) -> None:
    needs_pystorm()
    check_words([PYSTORM, "split.py"], write(tmp_path, "split.py", PYSTORM_SPLIT))


def test_a_bolt_of_pystorm_that_batches(tmp_path: Path) -> None:
    needs_pystorm()
    write(tmp_path, "batches.py", PYSTORM_BATCHES)
    builder = TopologyBuilder()
    builder.set_spout("lines", FromList(LINES, fields="line"))
    conf = {"topology.tick.tuple.freq.secs": 1}
    bolt = ShellBolt([PYSTORM, "batches.py"], ("word",), cwd=tmp_path, config=conf)
    builder.set_bolt("batches", bolt).shuffle_grouping("lines")
    result = complete_topology(builder.create_topology())
    assert sum(int(row[0].split()[1]) for row in result.tuples("batches")) == len(LINES)
    assert len(result.acked["lines"]) == len(LINES)


def test_a_bolt_of_storm_py(tmp_path: Path) -> None:
    needs_multilang("storm.py")
    check_words([sys.executable, "split.py"], write(tmp_path, "split.py", STORM_SPLIT))


def test_a_spout_of_storm_py(tmp_path: Path) -> None:
    needs_multilang("storm.py")
    write(tmp_path, "lines.py", STORM_LINES)
    spout = ShellSpout([sys.executable, "lines.py"], ("line",), cwd=tmp_path)
    run = run_spout(spout, 0)
    try:
        while len(run.emitted) < 2:
            run.next()
        run.ack(run.emitted[0].msg_id)
        run.fail(run.emitted[1].msg_id)
        while len(run.emitted) < 3:
            run.next()
        assert run.emitted == [["one"], ["two"], ["two"]]
    finally:
        spout.close()


@pytest.mark.parametrize("later", ["false", "true"])
def test_a_bolt_of_storm_js(tmp_path: Path, later: str) -> None:
    needs_multilang("storm.js")
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    directory = write(tmp_path, "split.js", NODE_SPLIT.replace("LATER", later))
    check_words(["node", "split.js"], directory)
