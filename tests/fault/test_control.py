"""Submitted topologies as processes: they live, are commanded, die and come back."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.request
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from tests.fault.homes import Home, end, until
from topo.errors import RunError
from topo.manage.answers import written_errors, written_figures
from topo.manage.api import Management
from topo.manage.client import ControlClient, DriverUnreachable
from topo.manage.control import PREFIX

pytestmark = pytest.mark.fault


@pytest.mark.smoke
def test_the_whole_way(home: Home) -> None:
    answer = home.submit()
    assert answer.startswith(f"submitted words ({home.run.id}) to local[*]: ACTIVE after ")
    listed = json.loads(home.topo("list", "--json"))
    assert [(row["name"], row["status"], row["tasks"]) for row in listed] == [
        ("words", "ACTIVE", 3)
    ]
    assert home.topo("deactivate", "words") == "words: INACTIVE (was ACTIVE); spouts stopped\n"
    assert home.topo("deactivate", "words") == "words: INACTIVE (was already)\n"
    until(lambda: home.run.status == "INACTIVE")
    assert home.topo("activate", "words") == "words: ACTIVE (was INACTIVE)\n"
    assert home.topo("errors", "words") == "No errors.\n"
    shown = home.topo("stats", "words").splitlines()
    assert shown[0].startswith("words ACTIVE ")
    assert shown[1].split()[:5] == ["COMPONENT", "KIND", "TASKS", "EMITTED", "EXECUTED"]
    assert " ".join(shown[2].split()) == "numbers spout 1 1,000 - 988 12 timeout 12 - 411 - -"
    killed = home.topo("kill", "words")
    assert killed == ("killed words; its state is kept: topo submit --resume (or kill --purge)\n")
    assert not home.run.driver_alive
    until(lambda: not home.run.supervisor_alive)
    assert (home.run.status, home.run.reason) == ("KILLED", "")


def test_other_slots_and_back_if_they_cannot_be_had(home: Home) -> None:
    home.submit()
    before, after = "numbers 1 0 0", "sink 2 1 0 1 2"
    shown = home.topo("rebalance", "words", "-n", "3", "--explain").splitlines()
    assert [" ".join(line.split()) for line in shown[1:]] == [
        before,
        after,
        "2 -> 3 slots; 1 of 3 tasks moves, with all that it has saved",
    ]
    assert home.run.submission.workers is None
    answer = home.topo("rebalance", "words", "-n", "3")
    assert re.fullmatch(r"rebalanced words: 2 -> 3 slots after [\d.]+ s\n", answer)
    assert home.run.submission.workers == 3, "for the next driver"
    assert "it has 3 slots already" in home.topo("rebalance", "words", "-n", "3", code=4)

    home.say(hold=True)
    assert home.topo("rebalance", "words", "-n", "5", "-w", "0") == (
        "words: REBALANCING; topo list shows how far it is\n"
    )
    assert home.run.submission.workers == 5, "one that dies on the way is followed by one of five"
    home.say(rebalance_failure="the disk is full")
    until(lambda: home.run.submission.workers == 3)
    said = home.topo("rebalance", "words", "-n", "6", code=7)
    assert "\nerror: words keeps its 3 slots: the disk is full\n" in said
    until(lambda: home.run.submission.workers == 3)
    marks = Management(home.registry).history("words").marks
    assert [mark.text for mark in marks if mark.kind == "rebalance"] == [
        "rebalance to 3 slots begins",
        "rebalance ended: it runs on 3 slots",
        "rebalance to 5 slots begins",
        "rebalance ended: the disk is full",
        "rebalance to 6 slots begins",
        "rebalance ended: the disk is full",
    ]


def test_it_returns_within_its_limits_by_itself_and_tells_why(home: Home, tmp_path: Path) -> None:
    conf = {"topology.scale.secs": 0.05, "topology.scale.rest.secs": 0.2}
    (tmp_path / "conf.json").write_text(json.dumps(conf))
    options = ("--master", "local[8]", "--config", str(tmp_path / "conf.json"))
    home.submit("--workers", "3..4", *options)
    assert home.run.submission.workers == 3, "the fewest to begin with"
    home.topo("rebalance", "words", "-n", "2")
    until(lambda: home.run.submission.workers == 3)
    until(lambda: home.scaling.next and home.scaling.next.verdict == "wait")
    decisions = json.loads(home.topo("scale", "words", "--json"))["decisions"]
    steps = [each for each in decisions if each["to"] != each["slots"]]
    assert [(each["slots"], each["to"], each["reason"]) for each in steps] == [
        (2, 3, "it is to have 3 to 4 slots")
    ]
    shown = home.topo("scale", "words").splitlines()
    assert shown[0] == "words: 3 slots, between 3 and 4"
    assert shown[1].split()[:4] == ["AT", "FOR", "DECISION", "SLOTS"]
    said = home.topo("scale", "words", "--dry-run")
    assert said == "words keeps its 3 slots (wait): it is measured; not measured yet\n"
    assert json.loads(home.topo("scale", "words", "--dry-run", "--json"))["verdict"] == "wait"
    assert (
        "words scales from 2 to 3 slots (up): it is to have 3 to 4 slots"
        in home.run.log.read_text()
    )

    home.say(rebalance_failure="the disk is full")
    home.topo("rebalance", "words", "-n", "5", code=7)
    assert not home.decided("failed"), "it was somebody else's"
    home.say()
    home.topo("rebalance", "words", "-n", "5")
    home.say(rebalance_failure="the disk is full")
    until(lambda: home.decided("failed"))
    assert home.run.submission.workers == 5
    first = home.run
    end(first.driver_pid)
    until(lambda: home.is_back(first))
    until(lambda: home.decided("barred"))
    assert home.decided("failed") == ["4 slots cannot be had: the disk is full"], "it remembers"
    home.topo("kill", "words")
    assert "up" in home.topo("scale", "words"), "what it wrote last"
    assert "nothing is known of words" in home.topo("scale", "words", "--dry-run", code=4)


def test_without_limits_it_does_not_scale(home: Home) -> None:
    home.submit()
    assert home.topo("scale", "words") == (
        "words does not scale by itself: it was not given --workers MIN..MAX\n"
    )
    said = home.topo("scale", "words", "--dry-run", code=4)
    assert "words does not scale by itself" in said
    assert "topo rebalance words -n N; or submit it with --workers MIN..MAX" in said


def test_other_tasks_are_asked_of_the_driver_and_stored_for_the_next_one(home: Home) -> None:
    home.submit()
    shown = home.topo("rebalance", "words", "-e", "sink=4", "--explain").splitlines()
    assert " ".join(shown[2].split()) == "sink 2 -> 4 1 0 1 0 1 0"
    assert home.run.submission.conf.get("topology.task.ids") is None
    for bad in ("sink", "sink=", "=3", "sink=0", "sink=-1", "sink=x", "sink=70000"):
        said = home.topo("rebalance", "words", "-e", bad, code=2)
        assert "numbers of tasks are given by component, from 1 to 65535" in said
    home.topo("rebalance", "words", "-e", f"sink={'1' * 5000}", code=2)
    said = home.topo("rebalance", "words", "-e", "sink=3", "-e", "sink=4", code=2)
    assert "'sink' is given twice" in said
    for more in ((), ("--explain",)):
        said = home.topo("rebalance", "words", "-e", "numbers=3", *more, code=4)
        assert "spout 'numbers' cannot have another number of tasks" in said
    answer = home.topo("rebalance", "words", "-n", "3", "-e", "sink=4")
    assert re.fullmatch(
        r"rebalanced words: 2 -> 3 slots, sink 2 -> 4 tasks after [\d.]+ s\n", answer
    )
    assert home.run.submission.conf["topology.task.ids"] == {"sink": [9, 4]}
    assert home.run.submission.tasks == 5
    home.say(rebalance_failure="a key is not the input's")
    said = home.topo("rebalance", "words", "-e", "sink=5", code=7)
    assert "\nerror: words keeps its 3 slots: a key is not the input's\n" in said
    assert home.run.submission.conf["topology.task.ids"] == {"sink": [9, 4]}
    assert home.run.submission.tasks == 5
    home.say(rebalance_failure="there are cores for 3 slots, and not for 8", dealt=True)
    said = home.topo("rebalance", "words", "-n", "8", "-e", "sink=5", code=7)
    assert "\nerror: words has 3 slots, sink 5 tasks: there are cores for 3 slots, and n" in said
    assert json.loads(home.topo("list", "--json"))[0]["tasks"] == 6


def test_a_topology_is_saved_while_it_runs(home: Home, tmp_path: Path) -> None:
    home.submit()
    place = tmp_path / "saved"
    answer = home.topo("savepoint", "words", str(place))
    assert re.fullmatch(rf"saved words, batch 7, in {place} \([\d.]+ k?B\)\n", answer)
    assert "is not empty" in home.topo("savepoint", "words", str(place), code=4)
    document = json.loads(home.topo("savepoint", "words", "--json"))
    assert document["directory"] == str(home.registry.home / "savepoints" / "words" / "1")
    assert (document["pending"], document["components"]["sink"]["tasks"]) == (3, 2)
    assert home.topo("savepoint", "show", document["directory"]).startswith("words, batch 7, ")
    (row,) = json.loads(home.topo("state", "words", "sink", "cow", "--json"))
    management = Management(home.registry)
    assert management.state("words", "sink", "", "c*", 10).entries == [row]
    with pytest.raises(RunError, match="has no key 'sheep'"):
        management.state("words", "sink", "sheep", "", 10)
    (saved,) = management.savepoints("words").savepoints
    assert saved.directory == document["directory"]
    assert (row["key"], row["value"]) == ("cow", 3)
    home.say(full=True)
    assert "the disk is full" in home.topo("savepoint", "words", code=4)
    assert home.run.status == "ACTIVE"


def test_a_lock_of_whoever_submitted_is_not_kept(home: Home, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        os.set_inheritable(held.fileno(), True)
        home.submit()
    with lock.open("w") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_kill_lets_what_is_in_flight_finish(home: Home) -> None:
    home.submit("-c", "script.pending=1000", "-c", "script.drained=100")
    (killed,) = json.loads(home.topo("kill", "words", "--json"))
    assert killed["pending"] == 0
    assert killed["waited_secs"] > 0


def test_kill_waits_no_longer_than_it_is_told(home: Home) -> None:
    home.submit("-c", "script.pending=1000", "-c", "script.drained=0")
    (killed,) = json.loads(home.topo("kill", "words", "-w", "0.2", "--json"))
    assert killed["waited_secs"] < 20
    assert home.run.status == "KILLED"


def test_two_submits_at_once_under_one_name(home: Home, tmp_path: Path) -> None:
    code = (
        "import sys, topo.cli.submit\n"
        "topo.cli.submit.ENGINE = 'scripted_engine:ScriptedEngine'\n"
        "from topo.cli.root import run\n"
        "sys.exit(run(['submit', 'numbers_topology.py']))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 4]
    loser = said[0] if both[0].returncode else said[1]
    assert "error: words is " in loser
    assert "hint: topo kill words, or -n another" in loser
    assert len(home.registry.runs()) == 1


def test_a_driver_killed_by_sigkill_comes_back(home: Home) -> None:
    home.submit()
    home.say(batch=3)
    until(lambda: home.run.state.batch == 3)
    first = home.run
    end(first.driver_pid)
    back = until(lambda: home.run if home.is_back(first) else None)
    assert back.submission.checkpoint == first.submission.checkpoint
    assert back.supervision is not None
    assert back.supervision.last_failure == "its driver was ended by SIGKILL"
    home.topo("activate", "words")  # it answers, at its new address


def test_totals_go_on_over_restarts_which_are_told_of(home: Home) -> None:
    home.submit()
    home.say(batch=3, errors=True)
    management = Management(home.registry)

    def are_written(drivers: int) -> bool:
        if home.run.state.batch != 3:
            return False
        figures = written_figures(home.run.directory)
        errors = written_errors(home.run.directory)
        return bool(
            figures
            and figures["components"]["numbers"]["acked"] == 988 * drivers
            and [error["count"] for error in errors] == [312 * drivers]
        )

    for drivers in (1, 2):
        until(partial(are_written, drivers))
        first = home.run
        end(first.driver_pid)
        until(partial(home.is_back, first))
    view = management.topology("words")
    assert (view.answers, view.restarts) == (True, 2)
    assert view.last_failure == "its driver was ended by SIGKILL"
    spout = view.components["numbers"]
    assert (spout["emitted"], spout["acked"], spout["failed_by"]) == (3000, 2964, {"timeout": 36})
    assert spout["by_task"] == {}
    assert spout["complete_ms"] == pytest.approx(411.0)
    (error,) = management.errors("words")
    assert error.count == 3 * 312
    restarted = "restarted 2 times (its driver was ended by SIGKILL)"
    assert restarted in home.topo("list")
    assert restarted in home.topo("stats", "words").splitlines()[0]
    home.say(batch=3, complete=True)
    until(lambda: home.run.over)
    (row,) = json.loads(home.topo("list", "--all", "--json"))
    assert (row["status"], row["acked"], row["restarts"]) == ("COMPLETED", 2964, 2)


def test_batches_of_the_driver_before_are_no_progress_of_the_next(home: Home) -> None:
    home.submit("-c", "topology.restart.max=1")
    home.say(batch=3)
    until(lambda: home.run.state.batch == 3)
    home.say(batch=0)  # as the next ones say, which get nowhere
    for _ in range(2):
        pid = until(lambda: home.run.driver_pid)
        until(lambda: home.run.status == "ACTIVE")
        end(pid)
        home.until_gone(pid)
    until(lambda: home.run.over)
    assert home.run.reason.endswith("SIGKILL; 2 failures in a row")
    assert home.run.state.batch == 3


def test_what_was_deactivated_comes_back_inactive(home: Home) -> None:
    home.submit()
    home.topo("deactivate", "words")
    first = home.run
    end(first.driver_pid)
    until(lambda: home.is_back(first) and home.run.status == "INACTIVE")
    marks = Management(home.registry).history("words").marks
    assert [(mark.kind, mark.text.partition(",")[0]) for mark in marks] == [
        ("change", "ACTIVE to INACTIVE"),
        ("restart", "start 2"),
    ]


def test_the_supervisor_is_killed_too(home: Home) -> None:
    home.submit()
    run = home.run
    end(run.supervisor_pid)
    until(lambda: not home.run.supervisor_alive)
    assert "its supervisor is gone" in json.loads(home.topo("list", "--json"))[0]["reason"]
    end(run.driver_pid)
    until(lambda: not home.run.driver_alive)
    (row,) = json.loads(home.topo("list", "--all", "--json"))
    assert (row["status"], row["reason"]) == ("FAILED", "its driver and its supervisor died")
    assert home.topo("list").startswith("No topologies running; 1 finished")


def test_a_driver_that_keeps_dying_is_given_up(home: Home) -> None:
    home.submit("-c", "topology.restart.max=1")
    for _ in range(2):
        pid = until(lambda: home.run.driver_pid)
        end(pid)
        home.until_gone(pid)
    until(lambda: home.run.over)
    assert home.run.status == "FAILED"
    assert home.run.reason == "its driver was ended by SIGKILL; 2 failures in a row"


def test_an_error_of_the_users_code_is_final(home: Home) -> None:
    home.submit()
    home.say(batch=2)
    until(lambda: home.run.state.batch == 2)
    home.say(batch=2, **{"raise": "user"})
    until(lambda: home.run.over and not home.run.supervisor_alive)
    assert home.run.status == "FAILED"
    assert home.run.reason == "bolt 'count' task 2, tuple ['cow'] of 'split': KeyError: 'cow'"
    assert home.run.state.traceback.endswith("KeyError: 'cow'")


def test_an_error_of_the_engine_is_retried_once_it_has_worked(home: Home) -> None:
    home.submit()
    home.say(batch=2)
    until(lambda: home.run.state.batch == 2)
    home.say(batch=2, **{"raise": "engine"})
    until(lambda: home.run.supervision and home.run.supervision.last_failure)
    assert home.run.supervision is not None
    assert home.run.supervision.last_failure == "Spark went away"
    home.say(batch=3)
    until(lambda: home.run.status == "ACTIVE")


def test_a_start_that_fails_says_why_and_is_not_retried(home: Home) -> None:
    said = home.submit("-c", "script.fail_start=no Java", code=5)
    assert "error: words FAILED: no Java\n" in said
    assert "driver.log" in said
    assert "FAILED before its first batch: no Java" in home.topo("errors", "words")
    until(lambda: not home.run.supervisor_alive)


def test_a_start_that_takes_longer_than_the_wait(home: Home) -> None:
    home.say(status="STARTING", reason="Spark is coming up")
    said = home.submit("-w", "0.5", code=124)
    assert "error: words is still STARTING after 0.5 s" in said
    assert "hint: it goes on in the background: topo list" in said
    home.say()
    until(lambda: home.run.status == "ACTIVE")


def test_without_waiting(home: Home) -> None:
    assert json.loads(home.submit("-w", "0", "--json"))["status"] == "STARTING"
    until(lambda: home.run.status == "ACTIVE")


def test_kill_goes_on_with_the_next(home: Home) -> None:
    home.submit()
    assert "no topology 'nowhere'" in home.topo("kill", "nowhere", "words", code=4)
    assert home.run.status == "ACTIVE"
    assert "killed words" in home.topo("kill", "-i", "nowhere", "words")
    assert home.topo("kill", "-i", "nowhere", code=4) == "nowhere: no topology 'nowhere'\n"


def test_errors_and_watching(home: Home) -> None:
    home.submit()
    home.say(errors=True)
    shown = home.topo("errors", "words").splitlines()
    assert shown[0].split() == ["LAST", "COUNT", "COMPONENT", "TASK", "ERROR", "AT"]
    words = " ".join(shown[1].split()[1:])
    assert words == "312 sink 2 OperationalError: database is locked sink.py:31"
    assert home.topo("errors", "words", "numbers") == "No errors.\n"
    assert "Traceback" in home.topo("errors", "words", "--traceback", "--since", "10m")
    watching = [sys.executable, "-m", "topo.cli", "stats", "words", "--watch", "0.1", "--json"]
    with subprocess.Popen(watching, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        seen = [json.loads(watch.stdout.readline()) for _ in range(3)]
        home.topo("kill", "words")
        rest, _ = watch.communicate(timeout=30)
    assert [document["status"] for document in seen] == ["ACTIVE"] * 3
    assert json.loads(rest.splitlines()[-1])["status"] == "KILLED"


def test_a_kill_while_the_driver_is_down(home: Home) -> None:
    home.submit("-c", "topology.restart.max=9")
    for _ in range(3):  # until the pauses are long enough to be met in one
        pid = until(lambda: home.run.driver_pid)
        end(pid)
        home.until_gone(pid)
    until(lambda: not home.run.driver_alive)
    home.topo("kill", "words")
    assert (home.run.status, home.run.supervisor_alive) == ("KILLED", False)


def test_a_kill_right_after_the_submit(home: Home) -> None:
    home.submit("-w", "0")
    home.topo("kill", "words")
    assert (home.run.status, home.run.driver_alive) == ("KILLED", False)


def test_force_ends_what_does_not_answer(home: Home) -> None:
    home.submit()
    run = home.run
    assert run.driver_pid
    os.kill(run.driver_pid, signal.SIGSTOP)
    home.topo("kill", "--force", "words")
    assert (home.run.status, home.run.driver_alive) == ("KILLED", False)


@pytest.mark.parametrize("begun", [0, 1, 2])
def test_force_ends_what_has_hardly_begun(home: Home, begun: int) -> None:
    """No process, supervisor, or driver is there, and holds no lock by which it could be seen."""
    home.submit("-w", "0")
    directory = str(home.run.directory)
    until(lambda: len(processes_of(directory)) >= begun)
    home.topo("kill", "--force", "words")
    until(lambda: not processes_of(directory))
    assert (home.run.status, home.run.supervisor_alive) == ("KILLED", False)


def processes_of(directory: str) -> list[int]:
    processes = psutil.process_iter(["cmdline"])
    return [each.pid for each in processes if directory in (each.info["cmdline"] or ())]


def test_a_completed_topology_is_over(home: Home) -> None:
    home.submit()
    home.say(complete=True)
    until(lambda: home.run.status == "COMPLETED" and not home.run.supervisor_alive)
    home.submit()  # nothing to resume: no question asked
    assert home.run.status == "COMPLETED"


def test_resume_or_fresh(home: Home) -> None:
    home.submit()
    home.say(batch=812)
    until(lambda: home.run.state.batch == 812)
    home.topo("kill", "words")
    first = home.run.submission.checkpoint
    said = home.submit(code=2)
    assert "error: words has a checkpoint of " in said
    assert "(batch 812): continue it or start again?\n  hint: --resume or --fresh\n" in said
    home.submit("--resume")
    assert home.run.submission.checkpoint == first
    assert home.run.submission.resumed
    home.topo("kill", "words")
    home.submit("--fresh")
    assert home.run.submission.checkpoint != first
    home.topo("kill", "words", "--purge")
    assert not Path(home.run.submission.checkpoint).exists()


def test_only_who_has_the_token_commands(home: Home) -> None:
    home.submit()
    run = home.run
    assert stat.S_IMODE((run.directory / "token").stat().st_mode) == 0o600
    assert run.state.address.startswith("127.0.0.1:")
    for headers in ({}, {"Authorization": "Bearer guess"}, {"topo-token": "guess"}):
        connection = HTTPConnection(run.state.address, timeout=10)
        connection.request("POST", f"{PREFIX}/kill", headers=headers)
        assert connection.getresponse().status == 401
        connection.close()
    assert home.run.status == "ACTIVE"
    (run.directory / "token").chmod(0)
    if os.geteuid():
        with pytest.raises(DriverUnreachable, match="cannot read the token"):
            ControlClient(run)


def test_the_terminal_may_close(home: Home) -> None:
    home.submit()
    run = home.run
    for pid in (run.driver_pid, run.supervisor_pid):
        assert pid
        os.kill(pid, signal.SIGHUP)
        assert os.getsid(pid) == pid
    home.say(reason="still here")
    until(lambda: home.run.reason == "still here")


def test_a_driver_serves_its_figures_and_keeps_its_history(home: Home) -> None:
    home.submit("-c", "topology.metrics.bind=127.0.0.1:0")
    home.say(batch=5)
    until(lambda: home.run.state.batch == 5)
    driver_log = home.run.log

    def address() -> str:
        found = re.search(r"http://\S+/metrics", driver_log.read_text())
        return found[0] if found else ""

    with urllib.request.urlopen(until(address), timeout=10) as answer:
        text = answer.read().decode()
    assert 'topo_up{status="ACTIVE",topology="words"} 1.0' in text
    assert 'topo_tuples_acked_total{component="numbers"' in text
    management = Management(home.registry)
    assert [batch.id for batch in management.batches("words")] == [1, 2, 3, 4, 5]
    first = home.run
    history = first.directory / "history.json"
    end(first.driver_pid)
    until(lambda: home.is_back(first))
    home.topo("kill", "words")
    samples = json.loads(history.read_text())[0]
    assert samples[0][0] < until(lambda: home.run.state.since)
    assert len(samples) >= 2  # of both drivers
    assert [batch.id for batch in management.batches("words")] == [1, 2, 3, 4, 5]
