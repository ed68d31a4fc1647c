"""The management API over HTTP: every document and every action."""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ui.conftest import Serve, Site
from tests.ui.worlds import HOSTILE, World, decision, word_count
from topo.engine.spark.plan import make_plan
from topo.logs.requests import read_requests
from topo.manage.api import Management
from topo.manage.files import write_json
from topo.manage.processes import _role
from topo.storage.checkpoints import PLAN_FILE
from topo.topology.model import Topology


def test_the_list_has_every_topology_and_what_is_damaged(world: World, site: Site) -> None:
    world.add("old", "KILLED")
    world.add("words")
    world.add("broken", "FAILED", reason="KeyError: 'cow'")
    damaged = world.registry.directory_of("damaged-0000")
    damaged.mkdir()
    (damaged / "submission.json").write_text('{"id": [')
    with site.client("view") as client:
        found = client.get("/api/topologies").json()
        live = client.get("/api/topologies?all=false").json()
    rows = [(row["name"], row["status"], row["over"]) for row in found["topologies"]]
    assert rows == [("words", "ACTIVE", False), ("broken", "FAILED", True), ("old", "KILLED", True)]
    assert found["damaged"] == ["damaged-0000"]
    assert [row["name"] for row in live["topologies"]] == ["words"]
    row = found["topologies"][0]
    assert (row["acked"], row["failed"], row["rows_per_sec"]) == (960, 12, 1875.0)
    assert (row["p50_ms"], row["p99_ms"], row["lag_secs"]) == (540.0, 910.0, 1.5)


def test_an_entry_of_another_shape_hides_no_other(world: World, site: Site) -> None:
    world.add("words")
    odd = world.add("odd", "KILLED")
    submission = json.loads((odd.directory / "submission.json").read_text())
    wrong: list[dict[str, Any]] = [{"conf": [1, 2]}, {"name": ["x"]}, {"tasks": HOSTILE}]
    for change in wrong:
        (odd.directory / "submission.json").write_text(json.dumps(submission | change))
        with site.client() as client:
            found = client.get("/api/topologies")
            assert found.status_code == 200
            assert "words" in [row["name"] for row in found.json()["topologies"]]
            assert client.get("/metrics").status_code == 200
    (odd.directory / "submission.json").write_text(json.dumps(submission))
    for text in ("[]", '{"components": 7}', '{"batch": "x"}', "nonsense", '"text"'):
        (odd.directory / "stats.json").write_text(text)
        with site.client() as client:
            names = [row["name"] for row in client.get("/api/topologies").json()["topologies"]]
            assert "words" in names
            assert client.get("/api/topologies/odd").status_code == 200


def test_one_topology_with_its_plan_figures_and_history(world: World, site: Site) -> None:
    world.add("words", conf={"topology.max.spout.pending": 10})
    with site.client("view") as client:
        view = client.get("/api/topologies/words?window=10m").json()
        plan = client.get("/api/topologies/words/plan").json()
        history = client.get("/api/topologies/words/history").json()
        batches = client.get("/api/topologies/words/batches").json()
        workers = client.get("/api/topologies/words/workers").json()
    assert (view["status"], view["answers"], view["window"]) == ("ACTIVE", True, "10m")
    assert sorted(view["components"]) == ["count", "split", "words"]
    assert plan["levels"] == [["words"], ["split"], ["count"]]
    assert (plan["slots"], plan["is_final"]) == (2, False)
    words, split = plan["components"][2], plan["components"][1]
    assert (words["id"], words["pending_limit"], words["slots"]) == ("words", 20, [0, 1])
    assert split["inputs"] == [
        {
            "component": "words",
            "stream": "default",
            "grouping": "fields",
            "fields": ["word"],
            "loop": False,
        }
    ]
    assert len(history["times"]) == len(history["series"]["emitted_per_sec"]) == 60
    assert batches[-1]["id"] == 812
    assert batches[-1]["phases"]["addBatch"] == 580.0
    assert workers["slots"][0]["tasks"] == {"count": [1], "split": [3], "words": [5]}
    roles = {process["role"] for process in workers["processes"]}
    assert "driver" in roles


def test_what_a_dead_driver_wrote_is_shown_instead(world: World, site: Site) -> None:
    run = world.add("words")
    (run.directory / "history.json").write_text(
        json.dumps([[[1.0 + 20 * n, *[10.0 * n] * 13] for n in range(3)], [], []])
    )
    world.end("words")
    with site.client() as client:
        view = client.get("/api/topologies/words").json()
        history = client.get("/api/topologies/words/history?window=10m").json()
        refused = client.post("/api/topologies/words/activate")
    assert (view["answers"], view["batch"]["id"]) == (False, 812)
    assert history["times"] == []  # of the last ten minutes there is nothing
    assert refused.status_code in (409, 503)
    assert refused.json()["message"]


def test_errors_and_logs(world: World, site: Site) -> None:
    run = world.add("words")
    world.drivers["words"].errors_found = [
        {"component": "split", "task": 3, "host": "h", "kind": "reported", "type": "ValueError",
         "message": HOSTILE, "at": "words.py:3", "traceback": "Traceback", "count": 2,
         "first": 1.0, "last": 5.0},
        {"component": "count", "task": 1, "host": "h", "kind": "failed", "type": "",
         "message": "timeout", "at": "", "traceback": "", "count": 9, "first": 1.0, "last": 9.0},
    ]  # fmt: skip
    world.log(run, "one", "three", level="INFO")
    world.log(run, "a warning", level="WARNING")
    with site.client("view") as client:
        errors = client.get("/api/topologies/words/errors").json()
        of_one = client.get("/api/topologies/words/errors?component=split").json()
        logs = client.get("/api/topologies/words/logs?grep=^t").json()
        levels = client.get("/api/topologies/words/logs?level=WARNING").json()
        wrong = client.get("/api/topologies/words/logs", params={"grep": "("})
    assert [error["count"] for error in errors] == [9, 2]
    assert [error["message"] for error in of_one] == [HOSTILE]
    assert [line["message"] for line in logs["lines"]] == ["three"]
    assert logs["levels"] == {"INFO": 2, "WARNING": 1}
    assert [line["message"] for line in levels["lines"]] == ["a warning"]
    assert (wrong.status_code, "no regular expression" in wrong.json()["message"]) == (400, True)


def test_settings_have_their_origin_and_no_secrets(world: World, site: Site) -> None:
    world.add(
        "words",
        conf={"kafka.password": "hunter2", "db.url": "postgres://me:hunter2@db/x", "plain": 7},
    )
    with site.client("view") as client:
        answer = client.get("/api/topologies/words/conf")
        storm = client.get("/api/v1/topology/words")
    assert "hunter2" not in answer.text + storm.text
    found = {setting["key"]: setting for setting in answer.json()}
    assert found["kafka.password"]["value"] == "***"
    assert found["db.url"]["value"] == "postgres://me:***@db/x"
    assert found["plain"]["value"] == 7
    assert found["topology.workers"]["origin"] == "topo submit"
    assert found["topology.debug"]["origin"] == "default"
    assert found["topology.debug"]["meaning"] == "Log every tuple that is emitted."


def test_command_lines_are_for_those_who_may_change_things(world: World, site: Site) -> None:
    world.add("words")
    code = "input()"
    command = [sys.executable, "-c", code, "--password=hunter2"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE),  # of the driver, which this process is
        site.client("view") as viewer,
        site.client() as operator,
    ):
        seen = viewer.get("/api/topologies/words/workers")
        known = operator.get("/api/topologies/words/workers")
    assert "hunter2" not in seen.text
    assert "hunter2" in known.text
    roles = [[each["role"] for each in view.json()["processes"]] for view in (seen, known)]
    assert roles[0] == roles[1]


def test_the_title_of_a_process_is_no_role() -> None:
    words = ["postgres: alice secrets 10.0.0.7 idle", "", ""]
    assert _role(3, words, driver=1, supervisor=2) == "postgres"
    assert _role(3, [""], driver=1, supervisor=2) == ""
    assert _role(3, ["/usr/lib/jvm/bin/java", "-cp"], driver=1, supervisor=2) == "Spark (JVM)"


def test_the_cluster_has_hosts_slots_owners_and_free_places(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.manage.hosts.usable_cores", lambda: 5)
    world.add("words")
    world.add("sensors", "STALLED", conf={"topology.workers": 1})
    world.add("old", "KILLED")
    far = world.add("far")
    submission = json.loads((far.directory / "submission.json").read_text())
    moved = submission | {"master": "spark://elsewhere:7077"}
    (far.directory / "submission.json").write_text(json.dumps(moved))
    with site.client("view") as client:
        found = client.get("/api/cluster").json()
    here, there = found["hosts"]
    assert (here["is_here"], here["places"], here["slots"], here["free"]) == (True, 5, 3, 2)
    assert (here["topologies"], here["executors"]) == (2, 12)
    assert (there["host"], there["places"], there["free"]) == ("spark://elsewhere:7077", None, None)
    assert (found["slots_used"], found["slots_free"], found["topologies"]) == (5, 2, 3)
    assert [owner["topologies"] for owner in found["owners"]] == [3]
    assert found["owners"][0]["owner"] == far.directory.owner()
    placed = [(slot["topology"], slot["slot"]) for slot in found["slots"]]
    assert sorted(placed) == [("far", 0), ("far", 1), ("sensors", 0), ("words", 0), ("words", 1)]
    (alone,) = (slot for slot in found["slots"] if slot["topology"] == "sensors")
    assert alone["components"] == {"words": 2, "split": 2, "count": 2}


def test_batches_are_gone_through_by_number(world: World, site: Site) -> None:
    world.add("words")
    with site.client("view") as client:

        def asked(**query: int) -> list[int]:
            found = client.get("/api/topologies/words/batches", params=query).json()
            return [batch["id"] for batch in found]

        assert asked() == list(range(713, 813))
        assert asked(before=713, limit=2) == [711, 712]
        assert asked(before=513) == []
        assert client.get("/api/topologies/words/batches?limit=0").status_code == 400


def test_executors_of_a_spark_cluster_are_those_that_drivers_see(world: World, site: Site) -> None:
    for name in ("here", "far", "silent"):
        run = world.add(name)
        submission = json.loads((run.directory / "submission.json").read_text())
        master = "local[2]" if name == "here" else "spark://elsewhere:7077"
        moved = submission | {"master": master}
        (run.directory / "submission.json").write_text(json.dumps(moved))
        lost = [executor("[::1]:7", lost_at=float(at), why="worker lost") for at in range(1, 30)]
        odd: list[Any] = [{"place": 7}, {"cores": "many"}, "nonsense"]
        there = [executor("m4:4040", slots=[1]), executor("m3:4041", slots=[1])]
        world.drivers[name].executors_now = [*lost, *there, *odd]
    world.end("silent")
    with site.client("view") as client:
        cluster = client.get("/api/cluster").json()
        workers = {
            name: client.get(f"/api/topologies/{name}/workers").json() for name in ("here", "far")
        }
    views = cluster["spark_executors"]
    assert {view["topology"] for view in views} == {"far"}
    assert [(view["host"], view["cores"], view["tasks"]) for view in views[:1]] == [("m4", 2, 1)]
    assert [view["lost_at"] for view in views[2:]] == [float(at) for at in range(29, 9, -1)]
    assert (views[2]["host"], views[2]["why"]) == ("[::1]", "worker lost")
    # Slot 1 has levels on two executors; of slot 0 its driver does not tell.
    at = {slot["slot"]: slot for slot in cluster["slots"] if slot["topology"] == "far"}
    assert (at[0]["host"], at[0]["places"]) == ("spark://elsewhere:7077", [])
    assert (at[1]["host"], at[1]["places"]) == ("m3", ["m3:4041", "m4:4040"])
    assert {"m3", "spark://elsewhere:7077"} <= {host["host"] for host in cluster["hosts"]}
    far = [(slot["host"], slot["places"]) for slot in workers["far"]["slots"]]
    assert far == [("", []), ("m3", ["m3:4041", "m4:4040"])]
    assert {slot["host"] for slot in workers["here"]["slots"]} == {workers["here"]["host"]}


def executor(
    place: str, *, lost_at: float | None = None, why: str = "", slots: Sequence[int] = ()
) -> dict[str, Any]:
    return {
        "place": place, "cores": 2, "tasks": 1, "lost_at": lost_at, "why": why, "slots": [*slots],
    }  # fmt: skip


def test_a_damaged_topology_takes_the_slots_that_it_asked_for(world: World, site: Site) -> None:
    run = world.add("words")
    (run.directory / "topology.pb").write_bytes(b"nonsense")
    with site.client("view") as client:
        found = client.get("/api/cluster").json()
    assert (found["slots_used"], found["executors"]) == (2, 0)


def test_savepoints_are_written_beside_the_registry_and_listed(world: World, site: Site) -> None:
    world.add("words")
    world.add("old", "KILLED")
    home = world.registry.home / "savepoints" / "words"
    with site.client("view") as client:
        assert client.post("/api/topologies/words/savepoint").status_code == 403
        assert client.get("/api/topologies/words/savepoints").json()["savepoints"] == []
    with site.client() as client:
        for number in (1, 2):
            answer = client.post("/api/topologies/words/savepoint")
            assert answer.status_code == 201, answer.text
            assert answer.json()["directory"] == str(home / str(number))
        refused = client.post("/api/topologies/old/savepoint")
        assert (refused.status_code, refused.json()["hint"]) == (409, "topo savepoint old")
        assert client.get("/api/topologies/old/savepoints").json()["savepoints"] == []
    (home / "1" / "savepoint.json").write_text('{"format": "x"')
    with site.client("view") as client:
        listed = client.get("/api/topologies/words/savepoints").json()
    (saved,) = listed["savepoints"]
    assert (saved["batch"], saved["pending"], saved["directory"]) == (812, 14, str(home / "2"))
    assert listed["damaged"] == [str(home / "1")]


def test_state_is_read_by_a_process_of_its_own(
    world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("words")
    world.add("old", "KILLED")
    path = "/api/topologies/words/state"
    commands: list[list[str]] = []
    answers = [
        (0, b'[{"component": "count", "index": 0, "key": "cow", "value": 3}]', b""),
        (4, b"", b'{"error": {"code": "no-key", "message": "no key", "hint": "topo state"}}'),
        (1, b"", b"Segmentation fault"),
    ]

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        assert options["env"]["TOPO_HOME"] == str(world.registry.home)
        commands.append(command)
        return subprocess.CompletedProcess(command, *answers.pop(0))

    monkeypatch.setattr("topo.manage.savepoints.subprocess.run", run)
    with site.client("view") as client:
        assert client.post(path, json={"component": "count"}).status_code == 403
    with site.client() as client:
        found = client.post(path, json={"component": "--help", "key": "-x", "like": "-*"})
        assert found.json()["entries"][0]["value"] == 3
        assert commands[0][-6:] == ["--like", "-*", "--", commands[0][-3], "--help", "-x"]
        refused = client.post(path, json={"component": "count", "key": "sheep"})
        assert (refused.status_code, refused.json()["message"]) == (409, "no key")
        assert "Segmentation" in client.post(path, json={"component": "count"}).json()["message"]
        for bad in ({}, {"component": "count", "limit": 0}, {"component": "x" * 1001}):
            assert client.post(path, json=bad).status_code == 400
        over = client.post("/api/topologies/old/state", json={"component": "count"})
        assert (over.status_code, over.json()["hint"]) == (409, "topo state old count")
    assert len(commands) == 3


def test_only_operators_may_ask_a_slot_for_its_stacks(world: World, site: Site) -> None:
    run = world.add("words")
    path = "/api/topologies/words/stacks"
    with site.client("view") as client:
        assert client.post(path, json={"slot": 0}).status_code == 403
    with site.client() as client:
        answer = client.post(path, json={"slot": 0})
        assert (answer.status_code, answer.json()["error"]) == (409, "run")
        assert "no process of this machine answers for slot 0" in answer.json()["message"]
        for bad in ({"slot": -1}, {"slot": "../x"}, {"secs": 11}):
            assert client.post(path, json=bad).status_code == 400
        slots = client.get("/api/topologies/words/workers").json()["slots"]
    assert [slot["pid"] for slot in slots] == [None, None]
    audit = (run.directory.parent.parent / "ui-audit.jsonl").read_text().splitlines()
    assert {json.loads(line)["action"] for line in audit} == {f"POST {path}"}


def test_decisions_on_slots_are_shown_the_latest_first(world: World, site: Site) -> None:
    limits = {"topology.workers": {"min": 1, "max": 4}}
    run = world.add("words", conf=limits)
    stay = decision(verdict="stay", to=1, needed=None, figures=dict.fromkeys(decision()["figures"]))
    damaged: list[Any] = [
        {"at": 1},
        7,
        decision(at="x"),
        decision(figures=[]),
        decision(needed="3"),
        *(decision(at=at) for at in (1e300, -1e18, math.nan)),
        decision(figures={**decision()["figures"], "rate": math.inf}),
    ]
    world.drivers["words"].decisions = [stay, decision(), *damaged]
    with site.client() as client:
        view = client.get("/api/topologies/words/scale").json()
        assert [view[key] for key in ("slots", "least", "most", "is_dry")] == [1, 1, 4, False]
        assert [each["verdict"] for each in view["decisions"]] == ["up", "stay"]
        assert [view["decisions"][0][key] for key in ("to", "needed", "lag")] == [3, 3, 500]
        assert [view["decisions"][1][key] for key in ("needed", "busy")] == [None, None]
        write_json(run.directory / "scale.json", {"is_dry": True, "decisions": [decision()]})
        world.end("words")
        view = client.get("/api/topologies/words/scale").json()
        assert (view["is_dry"], len(view["decisions"])) == (True, 1), "what it wrote last"
        world.add("others")
        view = client.get("/api/topologies/others/scale").json()
        assert (view["most"], view["decisions"], view["next"]) == (None, [], None)


def test_other_slots_are_asked_of_the_driver(world: World, site: Site) -> None:
    world.add("words")
    with site.client() as client:
        answer = client.post("/api/topologies/words/rebalance", json={"workers": 5})
        assert answer.json() == {"name": "words", "status": "REBALANCING", "was": "ACTIVE"}
        assert (
            client.post("/api/topologies/words/rebalance", json={"workers": 0}).status_code == 400
        )
        assert world.drivers["words"].workers_now == 5
        path = "/api/topologies/words/rebalance"
        assert client.post(path, json={"tasks": {"count": 3}}).status_code == 202
        for bad in ({}, {"tasks": {"count": 0}}, {"tasks": {"count": "x"}}, {"tasks": [1]}):
            assert client.post(path, json=bad).status_code == 400
    assert world.drivers["words"].tasks_now == {"count": 3}


@pytest.mark.parametrize("action", ["deactivate", "activate", "kill"])
def test_actions(world: World, site: Site, action: str) -> None:
    world.add("words")
    body = {"wait_secs": 2} if action == "kill" else None
    reached = {"activate": "ACTIVE", "deactivate": "INACTIVE", "kill": "KILLED"}[action]
    with site.client() as client:
        answer = client.post(f"/api/topologies/words/{action}", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.json() == {"name": "words", "status": reached, "was": "ACTIVE"}
    assert world.drivers["words"].status_now == reached
    assert world.drivers["words"].killed_after == (2.0 if action == "kill" else None)


def test_a_kill_without_a_wait_takes_the_message_timeout(world: World, site: Site) -> None:
    world.add("words", conf={"topology.message.timeout.secs": 7})
    with site.client() as client:
        assert client.post("/api/topologies/words/kill").status_code == 202
        again = client.post("/api/topologies/words/kill")
    assert world.drivers["words"].killed_after == 7.0
    assert (again.status_code, again.json()["message"]) == (409, "words is KILLED already")


def test_what_does_not_exist(world: World, site: Site) -> None:
    world.add("words")
    with site.client() as client:
        for path, status in {
            "/api/topologies/wrods": 404,
            "/api/topologies/words?window=5m": 400,
            "/api/topologies/words?windw=all": 400,
            "/api/topologies?all=true&all=false": 400,
            "/api/topologies/words/logs?count=99999": 400,
            "/api/nothing": 404,
        }.items():
            answer = client.get(path)
            assert (path, answer.status_code) == (path, status)
            assert answer.json()["message"]
        hint = client.get("/api/topologies/wrods").json()["hint"]
        assert hint == "did you mean 'words'?"
        for body in (b"{", b"[]", b'{"wait_secs": -1}', b'{"wait": 1}', b'{"wait_secs": "1"}'):
            answer = client.post("/api/topologies/words/kill", content=body)
            assert (body, answer.status_code) == (body, 400)
        assert client.post("/api/topologies/words/kill", content=b" " * 70_000).status_code == 413
        assert client.get("/api/topologies/words/kill").status_code == 405
    assert world.drivers["words"].status_now == "ACTIVE"


def test_events_follow_the_figures(world: World, site: Site) -> None:
    run = world.add("words")
    world.log(run, "first")
    with site.client("view", timeout=10) as client:
        for path, kind in {
            "/api/events": "figures",
            "/api/topologies/words/events?window=10m": "figures",
            "/api/topologies/words/logs/events": "lines",
        }.items():
            with client.stream("GET", path) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                seen, document = next(_events(answer))
                assert (path, seen) == (path, kind)
                assert "words" in json.dumps(document) or document[0]["message"] == "first"


def test_log_events_go_on(world: World, site: Site) -> None:
    run = world.add("words")
    world.log(run, "first")
    with (
        site.client("view", timeout=10) as client,
        client.stream("GET", "/api/topologies/words/logs/events?count=5") as answer,
    ):
        events = _events(answer)
        assert [line["message"] for line in next(events)[1]] == ["first"]
        world.log(run, "second")
        assert [line["message"] for line in next(events)[1]] == ["second"]


def _events(answer: httpx.Response) -> Any:
    kind = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


def test_a_topology_of_many_components(world: World) -> None:
    world.add("wide", topology=word_count(bolts=30))
    plan = Management(world.registry).plan("wide")
    assert len(plan.levels) == 31


def test_log_levels_and_samples_are_asked_for(world: World, site: Site) -> None:
    run = world.add("words")
    world.add("old", "KILLED")
    with site.client() as client:
        level = client.post(
            "/api/topologies/words/log-level", json={"logger": "mine", "level": "DEBUG", "secs": 60}
        )
        sample = client.post(
            "/api/topologies/words/sample", json={"component": "split", "per_sec": 2, "secs": 30}
        )
        assert (level.status_code, sample.status_code) == (202, 202)
        asked = client.get("/api/topologies/words/log-requests").json()
        assert [(one["logger"], one["level"]) for one in asked["levels"]] == [("mine", "DEBUG")]
        assert [(one["component"], one["per_sec"]) for one in asked["samples"]] == [("split", 2.0)]
        storm = client.get("/api/v1/topology/words/logconfig").json()
        assert storm["namedLoggerLevels"]["mine"]["target_level"] == "DEBUG"
        body = {"namedLoggerLevels": {"ROOT": {"target_level": "WARN", "timeout": 30}}}
        storm = client.post("/api/v1/topology/words/logconfig", json=body).json()
        assert storm["namedLoggerLevels"]["ROOT"]["target_level"] == "WARNING"
        answer = client.post("/api/v1/topology/words/component/count/debug/enable/10")
        assert answer.json()["topologyOperation"] == "debug/enable"
        client.post("/api/topologies/words/sample", json={"component": "split", "secs": 0})
        asked = client.get("/api/topologies/words/log-requests").json()
        assert [one["component"] for one in asked["samples"]] == ["count"]
        nobody = client.post("/api/topologies/words/sample", json={"component": "cuont"})
        assert (nobody.status_code, nobody.json()["hint"]) == (404, "did you mean 'count'?")
        over = client.post("/api/topologies/old/log-level", json={})
        assert over.status_code == 409
    written = read_requests(run.directory / "log")
    assert set(written.levels) == {"mine", ""}


def submission(**more: Any) -> dict[str, Any]:
    built = base64.b64encode(word_count().to_bytes()).decode()
    return {"name": "words", "topology": built, **more}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories of the runs whose supervisors would have been started."""
    found: list[Path] = []
    monkeypatch.setattr("topo.manage.supervisor.spawn", found.append)
    return found


def test_a_built_topology_is_submitted_where_that_is_allowed(
    world: World, serve: Serve, started: list[Path]
) -> None:
    site = serve(allow_submit=True)
    with site.client() as client:
        conf = {"topology.workers": 2, "my.key": [1]}
        answer = client.post("/api/topologies", json=submission(conf=conf, master="local[2]"))
        assert answer.status_code == 202, answer.text
        assert answer.json() == {"name": "words", "status": "STARTING", "was": ""}
    run = world.registry.latest("words")
    assert run is not None
    assert started == [run.directory]
    assert (run.submission.master, run.submission.conf["my.key"]) == ("local[2]", [1])
    assert Topology.from_bytes((run.directory / "topology.pb").read_bytes()) == word_count()


def test_nobody_else_may_submit(world: World, serve: Serve, started: list[Path]) -> None:
    with serve().client() as client:
        assert client.post("/api/topologies", json=submission()).status_code == 405
    with serve(allow_submit=True, read_only=True).client() as client:
        assert client.post("/api/topologies", json=submission()).status_code in (403, 405)
    site = serve(allow_submit=True)
    with site.client("view") as client:
        assert client.post("/api/topologies", json=submission()).status_code == 403
    with site.client(None) as client:
        assert client.post("/api/topologies", json=submission()).status_code == 401
    with site.browser() as client:  # without the value that only the pages know
        assert client.post("/api/topologies", json=submission()).status_code == 403
    assert started == []


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"name": "words"}, "topology is missing"),
        (submission(topology="not base64!"), "not valid"),
        (submission(topology=base64.b64encode(b"\xff garbage").decode()), "not valid"),
        (submission(topology=""), "not valid"),
        (submission(name="../etc"), "name"),
        (submission(conf={"topology.wrokers": 2}), "topology.workers"),
        (submission(conf=[1]), "JSON object"),
        (submission(directory="/no/such/directory"), "no directory"),
        (submission(state="perhaps"), "refuse, resume, fresh"),
        (submission(other=1), "no parameter"),
    ],
)
def test_a_submission_that_is_wrong_is_refused_in_words(
    serve: Serve, started: list[Path], document: dict[str, Any], words: str
) -> None:
    with serve(allow_submit=True).client() as client:
        answer = client.post("/api/topologies", json=document)
    assert answer.status_code == 400
    assert words in f"{answer.json()['message']} {answer.json()['hint']}"
    assert started == []


def test_a_name_in_use_and_a_state_that_is_left_are_conflicts(
    world: World, serve: Serve, started: list[Path]
) -> None:
    world.add("words")
    with serve(allow_submit=True).client() as client:
        assert client.post("/api/topologies", json=submission()).status_code == 409


def test_a_plan_has_the_slots_that_the_driver_wrote(world: World, site: Site) -> None:
    run = world.add("words")
    directory = Path(run.submission.checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    topology = Topology.from_bytes((run.directory / "topology.pb").read_bytes())
    written = make_plan(topology, 3).as_dict()
    (directory / PLAN_FILE).write_text(json.dumps({"id": "x", "plan": written}))
    with site.client("view") as client:
        plan = client.get("/api/topologies/words/plan").json()
    assert (plan["slots"], plan["is_final"]) == (3, True)
