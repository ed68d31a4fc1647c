"""Follows log files, and posts an alert when errors of one kind come too often.

    pip install 'topo-spark[http]'
    topo local examples/log_alerts.py '/var/log/app/*.log' https://alerts.example.com/new

A line is read as `2026-11-19 12:00:00 ERROR payments: card refused`. Files are followed through
their rotation. A rule of `log_alerts.toml` alerts when it matched so often within a minute, and
then not again for a minute. Each alert is posted once the batch that raised it has committed, under
a key by which the server knows it if it comes twice. `ALERTS_TOKEN`, if it is set, goes along.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from topo import RuleBolt, Topology, TopologyBuilder, Tuple, bolt
from topo.connectors import Secret
from topo.connectors.files import FileSpout
from topo.connectors.http import HttpBolt

LINE = re.compile(r"(\S+ \S+) (\w+) ([\w.-]+): (.*)")
RULES = Path(__file__).with_suffix(".toml")


@bolt(outputs=("level", "service", "text"))
def parse(tup: Tuple) -> Any:
    """Emit the parts of a line."""
    match = LINE.match(tup[0])
    if match is not None:
        _, level, service, text = match.groups()
        yield [level, service, text]


def topology(
    logs: str = "/var/log/app/*.log", url: str = "http://localhost:8081/alerts"
) -> Topology:
    headers = {"Authorization": Secret.env("ALERTS_TOKEN")} if "ALERTS_TOKEN" in os.environ else {}
    builder = TopologyBuilder()
    builder.set_spout("logs", FileSpout(logs, "lines", mode="tail"))
    builder.set_bolt("parse", parse, parallelism=2).shuffle_grouping("logs")
    alert = builder.set_bolt("alert", RuleBolt(RULES, key="service"), parallelism=2)
    alert.fields_grouping("parse", ["service"])
    post = HttpBolt(url, headers=headers, guarantee="exactly_once")
    builder.set_bolt("post", post).shuffle_grouping("alert", "alerts")
    return builder.create_topology()
