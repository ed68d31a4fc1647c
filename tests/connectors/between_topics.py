"""A driver of its own between two topics of Kafka, for tests that kill it.

python -m tests.connectors.between_topics DIRECTORY SERVERS SOURCE TARGET
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from topo import LocalCluster, TopologyBuilder
from topo.connectors.kafka import KafkaBolt, KafkaSpout

ROOT = Path(__file__).parents[2]
_LONGEST_SECS = 600.0


def main(directory: str, servers: str, source: str, target: str) -> None:
    """Run until somebody kills this process."""
    spout = KafkaSpout(servers, source, value="json", fields="number", guarantee="exactly_once")
    builder = TopologyBuilder()
    builder.set_spout("source", spout, parallelism=2)
    sink = KafkaBolt(servers, target, guarantee="exactly_once")
    builder.set_bolt("sink", sink).shuffle_grouping("source")
    conf = {
        "topology.workers": 2,
        "topology.checkpoint.dir": f"{directory}/checkpoint",
        "topology.batch.max.tuples": 200,
    }
    with LocalCluster("local[2]") as cluster:
        cluster.submit_topology("between", builder.create_topology(), conf).wait(_LONGEST_SECS)


class Driver:
    """The process, with all that it starts."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.connectors.between_topics", str(directory)]
        self._output = directory / "output"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=ROOT,
            )  # fmt: skip

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def words(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Kill the driver alone, and wait until what it started has ended by itself."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait()
        _, alive = psutil.wait_procs(children, 60)
        assert not alive

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exception: object) -> None:
        if not self.has_ended:
            self.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
