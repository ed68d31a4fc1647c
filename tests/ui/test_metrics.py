"""The metrics that Prometheus reads, and the dashboard that is made for them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

import topo.ui
from tests.ui.conftest import Site
from tests.ui.worlds import HOSTILE, World, word_count

DASHBOARD = Path(topo.ui.__file__).with_name("grafana.json")


def families(site: Site, path: str = "/metrics") -> dict[str, Any]:
    """Return the exposed families by name."""
    with site.client("view") as client:
        answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def value(family: Any, **labels: str) -> float:
    """Return the one sample that has these labels."""
    (found,) = [s.value for s in family.samples if labels.items() <= s.labels.items()]
    return float(found)


def test_every_figure_is_exposed(world: World, site: Site) -> None:
    world.add("words")
    world.add("old", "KILLED")
    driver = world.drivers["words"]
    driver.figures["components"]["words"] |= {
        "complete_by": {"0.1": 900, "0.5": 60},
        "gauges": {'lag{partition="3",topic="a\\"b"}': 17.0, "depth": 2.0, "odd-name": 1.0},
        "counters": {'polls{component="x"}': 4},
    }
    driver.errors_found = [{"component": "split", "kind": "failed", "count": 3}]
    found = families(site)
    assert value(found["topo_up"], topology="words", status="ACTIVE") == 1
    assert value(found["topo_up"], topology="words", status="STALLED") == 0
    assert value(found["topo_tuples_emitted"], component="words", stream="default") == 1000
    assert value(found["topo_tuples_failed"], component="words", reason="timeout") == 12
    assert value(found["topo_execute_seconds"], component="split") == 0.75
    assert value(found["topo_capacity"], component="split") == 0.41
    assert value(found["topo_oldest_pending_seconds"], topology="words") == 1.5
    assert value(found["topo_errors"], component="split", kind="failed") == 3
    assert value(found["topo_batch_seconds"], le="0.3") == 10
    assert value(found["topo_batch_seconds"], le="+Inf") == 812
    assert value(found["topo_complete_seconds"], component="words", le="0.1") == 900
    assert value(found["topo_source_lag"], component="words", partition="3", topic='a"b') == 17
    assert value(found["topo_component_depth"], component="words") == 2
    assert value(found["topo_component_polls"], component="words", component_="x") == 4
    assert value(found["topo_complete_seconds"], component="words", le="+Inf") == 960
    topologies = {s.labels["topology"] for family in found.values() for s in family.samples}
    assert topologies == {"words"}


def test_by_task_and_openmetrics(world: World, site: Site) -> None:
    world.add("words")
    by_task = families(site, "/metrics?by=task")
    assert value(by_task["topo_tuples_executed"], component="split", task="1") == 500
    with site.client("view") as client:
        answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_names_are_escaped(world: World, site: Site) -> None:
    odd = HOSTILE + '\\"\n'
    world.add("words", topology=word_count(spout="odd"))
    figures = world.drivers["words"].figures
    figures["components"][odd] = figures["components"].pop("odd")
    found = families(site)
    assert value(found["topo_pending"], component=odd) == 14


def test_the_dashboard_asks_for_what_is_exposed(world: World, site: Site) -> None:
    world.add("words")
    world.drivers["words"].figures["components"]["words"]["complete_by"] = {"0.1": 9}
    world.drivers["words"].errors_found = [{"component": "split", "kind": "failed", "count": 3}]
    exposed: dict[str, set[str]] = {}
    for family in families(site).values():
        for sample in family.samples:
            exposed.setdefault(sample.name, set()).update(sample.labels)
    dashboard = json.loads(DASHBOARD.read_text())
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            for name, labels in re.findall(r"(topo_\w+)(?:\{([^}]*)\})?", target["expr"]):
                asked.add(name)
                assert name in exposed, (panel["title"], name)
                used = set(re.findall(r"(\w+)\s*=", labels))
                assert used <= exposed[name], (panel["title"], name, used)
            for legend in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert legend in target["expr"] or legend == "topology", panel["title"]
    assert len(asked) >= 12
