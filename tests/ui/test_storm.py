"""Storm's REST API: paths, names, types and oddities that scripts made for Storm UI rely on."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cases import read_cases
from tests.ui.conftest import Site
from tests.ui.worlds import World, error_of
from topo.storm_rest.parts import uptime

THREE = re.compile(r"\d+\.\d{3}")


def get(site: Site, path: str, status: int = 200) -> Any:
    """Return the document at a path of Storm's API."""
    with site.client("view") as client:
        answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_cluster(world: World, site: Site) -> None:
    world.add("words")
    world.add("old", "KILLED")
    cluster = get(site, "cluster/summary")
    assert (cluster["topologies"], cluster["tasksTotal"], cluster["slotsUsed"]) == (1, 6, 2)
    assert (cluster["supervisors"], cluster["schedulerDisplayResource"]) == (1, False)
    assert isinstance(cluster["stormVersion"], str)
    assert get(site, "nimbus/summary")["nimbuses"][0]["status"] == "Leader"
    assert get(site, "supervisor/summary")["supervisors"][0]["slotsUsed"] == 2
    (first, second) = get(site, "supervisor")["workers"]
    assert (first["topologyName"], second["componentNumTasks"]["words"]) == ("words", 1)
    assert get(site, "cluster/configuration")["topology.debug"] is False
    owners = get(site, "owner-resources")["owners"]
    assert owners[0]["totalTopologies"] == 1
    assert len(get(site, f"owner-resources/{owners[0]['owner']}")["topologies"]) == 1
    assert get(site, "owner-resources/nobody")["topologies"] == []
    assert len(get(site, "history/summary")["topo-history"]) == 2


def test_the_summary_of_topologies(world: World, site: Site) -> None:
    run = world.add("words")
    (row,) = get(site, "topology/summary")["topologies"]
    assert (row["id"], row["encodedId"], row["name"]) == (run.id, run.id, "words")
    assert (row["status"], row["tasksTotal"], row["workersTotal"]) == ("ACTIVE", 6, 2)
    assert row["executorsTotal"] == 6
    assert isinstance(row["uptimeSeconds"], int)
    assert re.fullmatch(r"\d+s", row["uptime"])


def test_one_topology(world: World, site: Site) -> None:
    run = world.add("words", conf={"api.token": "hunter2"})
    world.drivers["words"].errors_found = [
        {"component": "split", "task": 3, "host": "h", "kind": "reported", "type": "ValueError",
         "message": "no", "at": "", "traceback": "Traceback: no", "count": 2,
         "first": 1.0, "last": time.time() - 5},
    ]  # fmt: skip
    found = get(site, f"topology/{run.id}?window=600&sys=1")
    assert [one["window"] for one in found["topologyStats"]] == [
        "600",
        "10800",
        "86400",
        ":all-time",
    ]
    assert [one["windowPretty"] for one in found["topologyStats"]] == [
        "10m 0s",
        "3h 0m 0s",
        "1d 0h 0m 0s",
        "All time",
    ]
    assert found["topologyStats"][3]["completeLatency"] == "411.000"
    assert found["topologyStats"][3]["acked"] == 960
    (spout,) = found["spouts"]
    assert (spout["spoutId"], spout["completeLatency"], spout["acked"]) == ("words", "411.000", 960)
    bolts = {bolt["boltId"]: bolt for bolt in found["bolts"]}
    split = bolts["split"]
    assert (split["capacity"], split["executeLatency"]) == ("0.410", "0.750")
    assert (split["lastError"], split["errorHost"]) == ("Traceback: no", "h")
    assert 5 <= split["errorLapsedSecs"] < 60
    assert (bolts["count"]["lastError"], bolts["count"]["errorTime"]) == ("", None)
    assert (found["msgTimeout"], found["windowHint"], found["debug"]) == (30, "10m 0s", False)
    assert found["configuration"]["api.token"] == "***"
    assert found["workers"][0]["componentNumTasks"] == {"count": 1, "split": 1, "words": 1}
    assert get(site, "topology-workers/words")["hostPortList"][1]["port"] == 1


def test_one_component(world: World, site: Site) -> None:
    world.add("words")
    bolt = get(site, "topology/words/component/split")
    assert (bolt["componentType"], bolt["executors"], bolt["topologyStatus"]) == (
        "bolt",
        2,
        "ACTIVE",
    )
    assert len(bolt["boltStats"]) == 4
    assert bolt["inputStats"][0] == {
        "component": "words", "encodedComponentId": "words", "stream": "default",
        "executeLatency": "0.750", "processLatency": "0.750", "executed": 1000, "acked": 960,
        "failed": 12,
    }  # fmt: skip
    assert bolt["outputStats"] == [{"stream": "default", "emitted": 1000, "transferred": 1000}]
    assert [one["id"] for one in bolt["executorStats"]] == ["[1-1]", "[2-2]"]
    assert THREE.fullmatch(bolt["executorStats"][0]["capacity"])
    spout = get(site, "topology/words/component/words")
    assert (spout["componentType"], len(spout["spoutSummary"])) == ("spout", 4)
    assert THREE.fullmatch(spout["outputStats"][0]["completeLatency"])
    assert "inputStats" not in spout
    assert spout["spoutSummary"][3]["completeLatency"] == 411.0


def test_metrics_and_visualization(world: World, site: Site) -> None:
    world.add("words")
    metrics = get(site, "topology/words/metrics?window=86400")
    assert metrics["spouts"][0]["emitted"] == [{"stream_id": "default", "value": 1000}]
    split = next(bolt for bolt in metrics["bolts"] if bolt["id"] == "split")
    assert split["executed"] == [{"component_id": "words", "stream_id": "default", "value": 1000}]
    drawn = get(site, "topology/words/visualization")
    assert drawn["split"][":inputs"] == [
        {":component": "words", ":stream": "default", ":sani-stream": "sdefault",
         ":grouping": "fields"}
    ]  # fmt: skip
    assert (drawn["split"][":type"], drawn["split"][":capacity"]) == ("bolt", 0.41)
    table = get(site, "topology/words/visualization-init")["visualizationTable"]
    assert table[0][":row"][0][":stream"] == "default"
    assert get(site, "topology/words/lag") == {}
    lag = {'lag{partition="3",topic="clicks"}': 17.0, "depth": 1.0}
    world.drivers["words"].figures["components"]["words"]["gauges"] = lag
    spout = get(site, "topology/words/lag")["words"]
    assert (spout["spoutId"], spout["spoutLagResult"]["clicks"]["3"]["lag"]) == ("words", 17.0)
    assert get(site, "topology/words/logconfig") == {"namedLoggerLevels": {}}


KINDS: dict[str, Any] = {
    "str": str,
    "int": int,
    "num": (int, float),
    "bool": bool,
    "map": dict,
    "list": list,
    "three": str,
    "any": object,
}


def is_of(value: Any, kind: str) -> bool:
    """Return True if a value is of a kind that the file of Storm's answers names."""
    if kind.endswith("?"):
        return value is None or is_of(value, kind[:-1])
    if kind.endswith(" or N/A"):
        return value == "N/A" or is_of(value, kind.partition(" ")[0])
    if isinstance(value, bool):
        return kind in ("bool", "any")
    return isinstance(value, KINDS[kind]) and (kind != "three" or bool(THREE.fullmatch(value)))


def test_answers_have_the_shape_of_storms(world: World, site: Site) -> None:
    world.add("words")
    driver = world.drivers["words"]
    driver.errors_found = [
        {"component": "split", "task": 3, "host": "h", "kind": "reported", "type": "ValueError",
         "message": "no", "at": "", "traceback": "", "count": 2, "first": 1.0, "last": 5.0},
    ]  # fmt: skip
    driver.figures["components"]["words"]["gauges"] = {'lag{partition="3",topic="clicks"}': 17.0}
    answers: dict[str, Any] = {}
    differences = []
    for case in read_cases(Path(__file__).with_name("storm_2_8.jsonl")):
        path = case["path"]
        if path not in answers:
            answers[path] = get(site, path, case.get("status", 200))
        document = answers[path]
        for step in filter(None, case["at"].split(".")):
            document = document[int(step) if step.isdigit() else step]
        kinds = case["keys"]
        of = f"{path} {case['at']}"
        differences += [f"{of}: no {key}" for key in kinds.keys() - document.keys()]
        differences += [f"{of}: {key} is not Storm's" for key in document.keys() - kinds.keys()]
        differences += [
            f"{of}: {key} is {document[key]!r}, and {kind} in Storm"
            for key, kind in kinds.items()
            if key in document and not is_of(document[key], kind)
        ]
    assert differences == []


OTHERWISE = {
    ("cluster/summary", "availCPU"): "availCpu",
    ("cluster/summary", "memAssignedPercentUtil"): "text",
    ("cluster/summary", "cpuAssignedPercentUtil"): "text",
    ("cluster/summary", "nimbusUptime"): "of nimbus/summary, as nimbusUpTime",
    ("cluster/summary", "nimbusUptimeSeconds"): "of nimbus/summary",
    ("supervisor/summary", "usedCPU"): "usedCpu",
    ("nimbus/summary", "nimbusUpTimeSeconds"): "a number, but of one that is gone",
    ("nimbus/summary", "isLeader"): "status",
    ("owner-resources", "cpuGuarantee"): "N/A where nothing is guaranteed",
    ("owner-resources", "cpuGuaranteeRemaining"): "N/A where nothing is guaranteed",
    ("owner-resources", "memoryGuarantee"): "N/A where nothing is guaranteed",
    ("owner-resources", "memoryGuaranteeRemaining"): "N/A where nothing is guaranteed",
    ("owner-resources", "isolatedNodes"): "a number",
    ("topology/words", "errorPort"): "a number",
    ("topology/words/metrics", "window-hint"): "windowHint",
    ("topology/words/component/words", "completeLatency"): "a number in spoutSummary",
    ("topology/words/component/split", "eventLoggerCount"): "nothing",
    ("topology/words/component/split", "encodedComponent"): "encodedComponentId",
}
"""What Storm 2.8.8's UI server puts there instead of what an example of Storm's own has."""


def test_storms_own_examples_have_nothing_that_answers_lack(world: World, site: Site) -> None:
    world.add("words")
    error = error_of("words", "no", time.time())
    world.drivers["words"].errors_found = [error, error | {"component": "split"}]
    answers: dict[str, Any] = {}
    differences = set()
    for example in read_cases(Path(__file__).with_name("storm_examples.jsonl")):
        path = example["path"]
        document = answers.setdefault(path, None) or get(site, path)
        answers[path] = document
        for step in filter(None, example["at"].split(".")):
            document = document[int(step) if step.isdigit() else step]
        differences |= {
            (path, key)
            for key, kind in example["keys"].items()
            if key not in document or not (document[key] is None or is_of(document[key], kind))
        }
    assert differences == OTHERWISE.keys()


def test_changes(world: World, site: Site) -> None:
    run = world.add("words")
    with site.client() as client:
        for path, action, status in (
            (f"{run.id}/deactivate", "deactivate", "INACTIVE"),
            ("words/activate", "activate", "ACTIVE"),
            ("words/kill/7", "kill", "KILLED"),
        ):
            answer = client.post(f"/api/v1/topology/{path}", content="x=y")
            assert answer.json() == {
                "topologyOperation": action,
                "topologyId": run.id,
                "status": "success",
            }
            assert world.drivers["words"].status_now == status
    assert world.drivers["words"].killed_after == 7.0


def test_storms_rebalance_changes_slots_and_tasks(world: World, site: Site) -> None:
    run = world.add("words")
    path = "/api/v1/topology/words/rebalance/0"
    with site.client() as client:
        answer = client.post(path, json={"rebalanceOptions": {"numWorkers": 3}})
        assert answer.json() == {
            "topologyOperation": "rebalance",
            "topologyId": run.id,
            "status": "success",
        }
        assert world.drivers["words"].workers_now == 3
        for options in (3, {}, {"numWorkers": 0}, {"executors": {"split": 0}}, {"executors": [4]}):
            assert client.post(path, json={"rebalanceOptions": options}).status_code == 500
        assert client.post(path, json={}).status_code == 500
        unending = client.post(path, content=b'{"rebalanceOptions": {"numWorkers": 1e400}}')
        assert "the body is not" in unending.json()["errorMessage"]
        both = {"numWorkers": 4, "executors": {"split": 5}}
        assert client.post(path, json={"rebalanceOptions": both}).status_code == 200
    assert world.drivers["words"].workers_now == 4
    assert world.drivers["words"].tasks_now == {"split": 5}


@pytest.mark.parametrize(
    "path",
    [
        "topology/nobody",
        "topology/words?window=5",
        "topology/words/component/nobody",
        "nothing",
        "topology/nobody/lag",
    ],
)
def test_every_error_is_500(world: World, site: Site, path: str) -> None:
    world.add("words")
    document = get(site, path, 500)
    assert set(document) == {"error", "errorMessage"}
    assert document["errorMessage"]


def test_profiling_is_not_here(world: World, site: Site) -> None:
    world.add("words")
    with site.client() as client:
        for action in ("start", "dumpheap", "restartworker"):
            answer = client.post(f"/api/v1/topology/words/profiling/{action}/host:1")
            assert answer.status_code == 501
            assert "workers page" in answer.json()["errorMessage"]
        assert client.post("/api/v1/topology/words/kill/soon").status_code == 500
    assert world.drivers["words"].status_now == "ACTIVE"


def test_uptimes() -> None:
    assert [uptime(secs) for secs in (0, 59, 845, 7265, 90_061)] == [
        "0s",
        "59s",
        "14m 5s",
        "2h 1m 5s",
        "1d 1h 1m 1s",
    ]
