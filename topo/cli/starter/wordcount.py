"""A word count of a few lines: the smallest useful topology."""

from topo import BasicBolt, FromList, Topology, TopologyBuilder, bolt

LINES = [
    "the cow jumped over the moon",
    "an apple a day keeps the doctor away",
    "four score and seven years ago",
    "snow white and the seven dwarfs",
]

conf = {"topology.name": "word-count", "topology.max.spout.pending": 1000}


@bolt(outputs=("word",))
def split(tup):
    for word in tup.sentence.split():
        yield [word]


class Count(BasicBolt):
    outputs = ("word", "count")

    def prepare(self, conf, context, collector):
        self.counts = {}

    def execute(self, tup):
        count = self.counts.get(tup.word, 0) + 1
        self.counts[tup.word] = count
        self.emit([tup.word, count])


def topology(rounds: str = "100") -> Topology:
    """Build the topology; `topo local wordcount.py -- 5` runs five rounds."""
    builder = TopologyBuilder()
    lines = FromList(LINES * int(rounds), fields=("sentence",))
    builder.set_spout("sentences", lines)
    builder.set_bolt("split", split, parallelism=2).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    return builder.create_topology()
