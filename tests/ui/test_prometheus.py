"""A real Prometheus that reads a topology's figures, topo's alerts and what the dashboard asks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.processes import ServerProcess, find_program, free_port
from tests.ui.busy import add_busy
from tests.ui.conftest import Site
from tests.ui.worlds import World

pytestmark = pytest.mark.server
PATIENCE_SECS = 60.0
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [topo.rules.yml]
scrape_configs:
  - job_name: topo
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture
def asking(site: Site, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of a Prometheus that scrapes the site."""
    program, port = find_program("Prometheus", "prometheus"), free_port()
    rules = files("topo").joinpath("metrics/alerts.yml").read_text(encoding="utf-8")
    (tmp_path / "topo.rules.yml").write_text(rules)
    target = site.url.removeprefix("http://")
    config = CONFIG.format(token=site.server.tokens.of("view"), target=target)
    (tmp_path / "prometheus.yml").write_text(config)
    command = [
        program,
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    server = ServerProcess("prometheus", command, tmp_path, port)
    with ExitStack() as ends:
        client = ends.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1"))
        server.start()
        ends.callback(server.stop)
        yield client


def found(client: httpx.Client, query: str) -> list[dict[str, Any]]:
    """Return what a query has for an answer, once it has one; or nothing, after a while."""
    deadline, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
    while True:
        answer = client.get("/query", params={"query": query}).json()
        result: list[dict[str, Any]] = answer.get("data", {}).get("result", [])
        assert answer["status"] == "success" or answer["errorType"] == "unavailable", answer
        if result or time.monotonic() > deadline:
            return result
        pause.wait(0.2)


def test_prometheus_scrapes_what_the_alerts_and_the_dashboard_ask(
    world: World, site: Site, asking: httpx.Client
) -> None:
    add_busy(world, "shop", 5)
    (up,) = found(asking, 'topo_up{topology="shop", status="ACTIVE"} == 1')
    assert up["metric"]["job"] == "topo"
    with site.client("view") as client:
        components = client.get("/api/topologies/shop").json()["components"]
    capacity = found(asking, 'topo_capacity{topology="shop"}')
    assert {each["metric"]["component"]: float(each["value"][1]) for each in capacity} == {
        name: of["capacity"] for name, of in components.items() if of["kind"] == "bolt"
    }
    dashboard = json.loads(files("topo").joinpath("ui/grafana.json").read_text(encoding="utf-8"))
    (choice,) = [one for one in dashboard["templating"]["list"] if one["name"] == "topology"]
    assert choice["query"] == "label_values(topo_up, topology)"
    empty = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$topology", "shop").replace("$__rate_interval", "20s")
            if not found(asking, query):
                empty.append((panel["title"], query))
    assert empty == []
    (group,) = asking.get("/rules").json()["data"]["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}
    firing = {rule["name"] for rule in group["rules"] if rule["state"] != "inactive"}
    assert firing <= {"BoltFull", "MessagesFail", "UserErrors"}


def test_the_panels_of_the_dashboard_do_not_lie_on_each_other() -> None:
    dashboard = json.loads(files("topo").joinpath("ui/grafana.json").read_text(encoding="utf-8"))
    cells: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert cells.setdefault((x, y), panel["title"]) == panel["title"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
