"""Follows log files, and posts an alert when errors of one kind come too often.

    pip install 'topo[http]'
    topo local examples/log_alerts.py '/var/log/app/*.log' https://alerts.example.com/new

A line is read as `2026-11-19 12:00:00 ERROR payments: card refused`. Files are followed through
their rotation. A rule alerts when it matched so often within a minute, and then not again for that
minute. Each alert is posted once the batch that raised it has committed, under a key by which the
server knows it if it comes twice. `ALERTS_TOKEN`, if it is set, goes along.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from topo import StatefulBasicBolt, Topology, TopologyBuilder, Tuple, bolt
from topo.connectors import Secret
from topo.connectors.files import FileSpout
from topo.connectors.http import HttpBolt

LINE = re.compile(r"(\S+ \S+) (\w+) ([\w.-]+): (.*)")
WINDOW_SECS = 60


@dataclass(frozen=True)
class Rule:
    """A limit: so many lines of a level, with a text, in a minute, of one service."""

    name: str
    level: str
    pattern: str
    most: int

    def matches(self, level: str, text: str) -> bool:
        return level == self.level and re.search(self.pattern, text) is not None


RULES = (
    Rule("errors", "ERROR", "", 5),
    Rule("refused cards", "WARN", "card refused", 3),
    Rule("out of memory", "FATAL", "memory", 1),
)


@bolt(outputs=("rule", "service", "text"))
def match(tup: Tuple) -> Any:
    """Emit each line with the rules that it matches."""
    found = LINE.match(tup[0])
    if found is None:
        return
    _, level, service, text = found.groups()
    for rule in RULES:
        if rule.matches(level, text):
            yield [rule.name, service, text]


class Alert(StatefulBasicBolt):
    """Counts the matches of a rule and a service; alerts when there are too many in a minute."""

    outputs = ("rule", "service", "count", "text")

    def execute(self, tup: Tuple) -> None:
        now = self.context.now()
        key = (tup.rule, tup.service)
        times, quiet_until = self.state.get(key, ((), 0.0))
        times = (*(time for time in times if time > now - WINDOW_SECS), now)
        most = next(rule.most for rule in RULES if rule.name == tup.rule)
        if len(times) >= most and now >= quiet_until:
            self.emit([tup.rule, tup.service, len(times), tup.text])
            quiet_until = now + WINDOW_SECS
        self.state[key] = (times[-most:], quiet_until)


def topology(
    logs: str = "/var/log/app/*.log", url: str = "http://localhost:8081/alerts"
) -> Topology:
    headers = {"Authorization": Secret.env("ALERTS_TOKEN")} if "ALERTS_TOKEN" in os.environ else {}
    builder = TopologyBuilder()
    builder.set_spout("logs", FileSpout(logs, "lines", mode="tail"))
    builder.set_bolt("match", match, parallelism=2).shuffle_grouping("logs")
    builder.set_bolt("alert", Alert(), parallelism=2).fields_grouping("match", ["rule", "service"])
    post = HttpBolt(url, headers=headers, guarantee="exactly_once")
    builder.set_bolt("post", post).shuffle_grouping("alert")
    return builder.create_topology()
