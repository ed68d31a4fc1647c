"""A word count of a few lines: the smallest useful topology."""

from topo import BasicBolt, Spout, Topology, TopologyBuilder, bolt

LINES = [
    "the cow jumped over the moon",
    "an apple a day keeps the doctor away",
    "four score and seven years ago",
    "snow white and the seven dwarfs",
]

conf = {"topology.name": "word-count", "topology.max.spout.pending": 1000}


class Sentences(Spout):
    """A spout that emits the lines `rounds` times, each again until it was fully processed."""

    outputs = ("sentence",)

    def __init__(self, rounds):
        self.rounds = rounds

    def open(self, conf, context, collector):
        self.said = 0
        self.failed = []

    def next_tuple(self):
        if self.failed:
            number = self.failed.pop()
        elif self.said < self.rounds * len(LINES):
            number = self.said
            self.said += 1
        else:
            return
        self.emit([LINES[number % len(LINES)]], msg_id=number)

    def fail(self, msg_id, reason=""):
        self.failed.append(msg_id)

    def is_exhausted(self):
        return not self.failed and self.said >= self.rounds * len(LINES)


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
    builder.set_spout("sentences", Sentences(int(rounds)))
    builder.set_bolt("split", split, parallelism=2).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    return builder.create_topology()
