"""Submitting: whose name, which checkpoint, what is written down."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_control_logs import talking
from tests.unit.test_control_registry import held, say
from topo.cli.root import run
from topo.config import Config
from topo.errors import CheckpointError, RunError
from topo.manage.checkpoints import known_checkpoints, remove
from topo.manage.records import RunRecord
from topo.manage.registry import KEPT_SECS, Registry
from topo.manage.submit import Request, Resume, submit
from topo.storage.checkpoints import local_path, located

Submit = Callable[..., RunRecord]

SILENT = """
from topo import Spout, TopologyBuilder

class Silent(Spout):
    outputs = ("n",)
    def next_tuple(self): ...

builder = TopologyBuilder()
builder.set_spout("silent", Silent())
topology = builder.create_topology()
"""


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home")


@pytest.fixture
def submitted(registry: Registry, tmp_path: Path) -> Submit:
    """Submits a topology whose supervisor is never started."""

    def submitted(conf: dict[str, Any] | None = None, **more: Any) -> RunRecord:
        more.setdefault("name", "words")
        request = Request(
            topology=talking(),
            conf=Config(conf or {}),
            master="local[2]",
            code_directory=tmp_path,
            **more,
        )
        return submit(registry, request, spawn=lambda directory: None)

    return submitted


def ended(run: RunRecord, status: str = "KILLED", **said: Any) -> RunRecord:
    """The run is over, and has left a checkpoint."""
    checkpoint = Path(run.submission.checkpoint)
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "topo-plan.json").write_text("{}")
    say(run, status=status, **said)
    return run


def test_what_is_written_down(submitted: Submit, registry: Registry) -> None:
    run = submitted({"mine": 1, "topology.workers": 2}, py_files=("a.zip",), active=False)
    written = run.submission
    assert (written.name, written.workers, written.tasks, written.active) == ("words", 2, 2, False)
    assert written.py_files == ("a.zip",)
    assert written.conf == {
        "mine": 1,
        "topology.workers": 2,
        "topology.name": "words",
        "topology.checkpoint.dir": written.checkpoint,
    }
    assert written.checkpoint == str(registry.checkpoint_base("words") / run.id)
    assert Path(written.directory) == run.directory


def test_a_name_in_use(submitted: Submit) -> None:
    first = submitted()
    with pytest.raises(RunError, match=rf"words is STARTING since .* \({first.id}\)"):
        submitted()


def test_to_go_on_or_to_begin_anew_has_to_be_said(submitted: Submit) -> None:
    first = ended(submitted(), batch=812)
    with pytest.raises(CheckpointError, match=r"words has a checkpoint of .* \(batch 812\)"):
        submitted()
    resumed = ended(submitted(resume=Resume.RESUME))
    assert resumed.submission.checkpoint == first.submission.checkpoint
    assert resumed.submission.resumed
    fresh = submitted(resume=Resume.FRESH)
    assert fresh.submission.checkpoint != first.submission.checkpoint
    assert not fresh.submission.resumed


@pytest.mark.parametrize(
    ("options", "fate"),
    [
        ([], Resume.REFUSE),
        (["--resume"], Resume.RESUME),
        (["--fresh"], Resume.FRESH),
    ],
)
def test_only_what_was_typed_is_asked_for(
    options: list[str], fate: Resume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Request] = []

    def refuse(_: Registry, request: Request) -> RunRecord:
        requests.append(request)
        raise RunError("not now")

    monkeypatch.setattr("topo.cli.submit.submit_run", refuse)
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    code = tmp_path / f"silent_{fate.name.lower()}.py"  # a module is imported once
    code.write_text(SILENT)
    assert run(["submit", code.name, *options]) == 4
    assert [request.resume for request in requests] == [fate]
    assert Resume(0) == Resume.REFUSE, "what nothing was said of is never deleted"


def test_ctrl_c_while_it_starts_says_that_it_goes_on(
    submitted: Submit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> RunRecord:
        raise KeyboardInterrupt

    monkeypatch.setattr("topo.cli.submit.submit_run", lambda *_: submitted())
    monkeypatch.setattr("topo.cli.submit.await_start", interrupted)
    monkeypatch.setenv("TOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    code = tmp_path / "silent_interrupted.py"
    code.write_text(SILENT)
    assert run(["submit", code.name]) == 130
    said = capsys.readouterr().err
    assert "words is submitted all the same, and starts\n" in said
    assert "to give up: topo kill words\n" in said


def test_nothing_to_resume(submitted: Submit) -> None:
    with pytest.raises(CheckpointError, match="words left no checkpoint to resume"):
        submitted(resume=Resume.RESUME)


def test_what_a_completed_run_left_is_not_asked_about(submitted: Submit) -> None:
    first = ended(submitted(), "COMPLETED")
    assert submitted().submission.checkpoint != first.submission.checkpoint


def test_an_environments_directory(submitted: Submit) -> None:
    run = submitted(checkpoint_base="s3://bucket/x")
    assert run.submission.checkpoint == f"s3://bucket/x/words/{run.id}"
    say(run, status="KILLED")
    with pytest.raises(CheckpointError, match="continue it or start again"):
        submitted(checkpoint_base="s3://bucket/x")


@pytest.mark.parametrize(
    ("resume", "fate"),
    [(Resume.REFUSE, "refuse"), (Resume.RESUME, "resume"), (Resume.FRESH, "fresh")],
)
def test_what_is_out_of_sight_is_left_to_the_driver(
    submitted: Submit, resume: Resume, fate: str
) -> None:
    """Whether there is a checkpoint in S3 or HDFS, only the driver's JVM can tell."""
    run = submitted({"topology.checkpoint.dir": "s3a://b/state"}, resume=resume)
    assert (run.submission.checkpoint, run.submission.fate) == ("s3a://b/state", fate)
    assert run.submission.resumed == (resume == Resume.RESUME)
    say(run, status="KILLED")
    with pytest.raises(CheckpointError, match="continue it or start again"):
        submitted({"topology.checkpoint.dir": "s3a://b/state"})
    again = submitted({"topology.checkpoint.dir": "s3a://b/state"}, resume=Resume.FRESH)
    assert again.submission.fate == "fresh"


def test_a_directory_of_the_users_own(submitted: Submit, tmp_path: Path) -> None:
    own = {"topology.checkpoint.dir": str(tmp_path / "own")}
    first = ended(submitted(own))
    assert first.submission.checkpoint == str(tmp_path / "own")
    with pytest.raises(CheckpointError, match="continue it or start again"):
        submitted(own)
    submitted(own, resume=Resume.FRESH)
    assert not (tmp_path / "own").exists()


def test_only_a_checkpoint_is_deleted(submitted: Submit, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    letters.mkdir()
    (letters / "to-mother.txt").write_text("dear")
    with pytest.raises(CheckpointError, match="holds no checkpoint of topo's"):
        submitted({"topology.checkpoint.dir": str(letters)}, resume=Resume.FRESH)
    assert (letters / "to-mother.txt").exists()


def begun(path: Path) -> Path:
    """A checkpoint as topo and Spark make it."""
    for name in ("commits", "offsets", "sources", "state/0", "topo-reports"):
        (path / name).mkdir(parents=True)
    for name in ("metadata", ".metadata.crc", "topo-plan.json", ".topo-plan.json.crc", "commits/7"):
        (path / name).write_text("{}")
    return path


def test_a_checkpoint_is_deleted_by_what_it_holds(tmp_path: Path) -> None:
    assert remove(str(begun(tmp_path / "a"))) == []
    assert remove(f"file://{begun(tmp_path / 'b')}") == []
    assert list(tmp_path.iterdir()) == []
    assert remove("s3://bucket/x") is None
    mixed = begun(tmp_path / "c")
    (mixed / "thesis.tex").write_text("years of work")
    assert remove(str(mixed)) == ["thesis.tex"]
    assert [path.name for path in mixed.iterdir()] == ["thesis.tex"]


def test_a_bare_path_is_one_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop would look for it on `fs.defaultFS`."""
    monkeypatch.chdir(tmp_path)
    assert located("state of/mine") == f"file://{tmp_path}/state of/mine"
    assert located("/s") == located("file:/s") == located("file:///s") == "file:///s"
    assert located("s3a://b/state") == "s3a://b/state"
    assert local_path(located("/s")) == Path("/s")


def test_a_deletion_that_was_cut_short_is_finished(submitted: Submit, tmp_path: Path) -> None:
    place = begun(tmp_path / "state")
    (place / "topo-plan.json").rename(place / "topo-plan.removed")
    own = {"topology.checkpoint.dir": str(place)}
    with pytest.raises(CheckpointError, match="left no checkpoint to resume"):
        submitted(own, resume=Resume.RESUME)
    assert not submitted(own).submission.resumed
    assert not place.exists()


@pytest.mark.parametrize("resume", list(Resume))
def test_a_directory_with_other_things_is_no_place_for_state(
    submitted: Submit, tmp_path: Path, resume: Resume
) -> None:
    data = tmp_path / "data"
    (data / "state").mkdir(parents=True)
    (data / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"is not empty and holds no .* \(thesis.tex\)"):
        submitted({"topology.checkpoint.dir": str(data)}, resume=resume)
    assert remove(str(data)) == ["thesis.tex"]
    assert (data / "state").exists(), "what topo did not begin is not topo's to delete"


@pytest.mark.parametrize("resume", list(Resume))
def test_the_checkpoint_of_a_live_topology_is_its_own(
    submitted: Submit, tmp_path: Path, resume: Resume
) -> None:
    own = {"topology.checkpoint.dir": str(begun(tmp_path / "state"))}
    first = submitted(own, resume=Resume.RESUME)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "state")
    for place in (str(tmp_path / "state"), f"file://{tmp_path}/state", str(link)):
        with pytest.raises(
            CheckpointError, match=rf"is the checkpoint of words, which is STARTING \({first.id}"
        ):
            submitted({"topology.checkpoint.dir": place}, name="invoices", resume=resume)
    assert (tmp_path / "state" / "commits" / "7").exists()
    say(first, status="KILLED")
    assert submitted(own, name="invoices", resume=Resume.RESUME).submission.resumed


def test_a_checkpoint_that_a_driver_has_is_not_deleted(tmp_path: Path) -> None:
    place = begun(tmp_path / "state")
    (place / "topo-owner.lock").write_bytes(b"")
    refused = pytest.raises(CheckpointError, match=r"is the checkpoint of a topology that runs")
    with held(place / "topo-owner.lock"), refused:
        remove(str(place))
    assert (place / "commits" / "7").exists()
    assert remove(str(place)) == []


def long_ago(run: RunRecord, days: int = 8) -> None:
    then = time.time() - days * 24 * 3600
    for path in run.directory.iterdir():
        os.utime(path, (then, then))
    submission = run.directory / "submission.json"
    written = json.loads(submission.read_text())
    submission.write_text(json.dumps({**written, "submitted_at": then}))


@pytest.mark.parametrize("status", ["ACTIVE", "KILLED", "FAILED"])
def test_state_that_was_promised_is_never_forgotten(
    submitted: Submit, registry: Registry, status: str
) -> None:
    first = ended(submitted(), status, batch=812, since=time.time() - 8 * 24 * 3600)
    (first.directory / "log" / "driver.log").write_text("much")
    long_ago(first)
    submitted(name="other")
    with pytest.raises(CheckpointError, match="words has a checkpoint of"):
        submitted()
    assert not (first.directory / "log" / "driver.log").exists()
    again = submitted(resume=Resume.RESUME)
    assert again.submission.checkpoint == first.submission.checkpoint
    # Of two runs of one checkpoint the later is enough.
    say(again, status="KILLED", since=time.time() - 8 * 24 * 3600)
    submitted(name="another")
    assert [run.id for run in registry.runs() if run.name == "words"] == [again.id]


def test_a_machine_that_was_off_for_a_week_forgets_nothing(submitted: Submit) -> None:
    """A run that was ACTIVE for 8 days when the machine stopped was seen just before."""
    first = ended(submitted(), "ACTIVE", since=time.time() - 8 * 24 * 3600)
    Path(first.submission.checkpoint, "topo-plan.json").unlink()
    written = json.loads((first.directory / "submission.json").read_text())
    (first.directory / "submission.json").write_text(
        json.dumps({**written, "submitted_at": time.time() - 8 * 24 * 3600})
    )
    submitted(name="other")
    assert first.directory.exists()


def test_a_completed_runs_checkpoint_goes_with_it(submitted: Submit, registry: Registry) -> None:
    first = ended(submitted(), "COMPLETED", since=time.time() - KEPT_SECS - 1)
    submitted(name="other")
    assert not first.directory.exists()
    assert not Path(first.submission.checkpoint).exists()


def test_a_checkpoint_without_its_run_is_found(submitted: Submit, registry: Registry) -> None:
    first = ended(submitted())
    registry.forget(first)
    with pytest.raises(CheckpointError, match="words has a checkpoint of"):
        submitted()
    assert submitted(resume=Resume.RESUME).submission.checkpoint == first.submission.checkpoint


def test_the_last_run_is_the_one_that_was_submitted_last(
    submitted: Submit, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(submitted())
    monkeypatch.setattr(time, "time", lambda: 1_000_000_000.0)  # the clock was set back
    second = ended(submitted(resume=Resume.FRESH))
    assert submitted(resume=Resume.RESUME).submission.checkpoint == second.submission.checkpoint


def test_a_submit_that_fails_does_not_keep_the_name(registry: Registry, tmp_path: Path) -> None:
    request = Request("words", talking(), Config(), "local[2]", tmp_path)

    def fails(directory: Path) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    with pytest.raises(OSError, match="temporarily"):
        submit(registry, request, spawn=fails)
    assert submit(registry, request, spawn=lambda directory: None).status == "STARTING"


def test_every_checkpoint_is_listed(submitted: Submit, registry: Registry, tmp_path: Path) -> None:
    first = ended(submitted(), batch=3)
    own = begun(tmp_path / "own")
    live = submitted({"topology.checkpoint.dir": str(own)}, name="orders", resume=Resume.RESUME)
    begun(tmp_path / "base" / "lost" / "lost-1")
    nothing = submitted(name="nothing")  # has not begun
    found = {each.name: each for each in known_checkpoints(registry, str(tmp_path / "base"))}
    assert set(found) == {"words", "orders", "lost"}
    assert (found["words"].run or nothing).id == first.id
    assert (found["orders"].run or nothing).id == live.id
    assert found["orders"].is_used
    assert not found["words"].is_used
    assert found["lost"].run is None
    assert [found[name].last_batch for name in ("words", "orders", "lost")] == [None, 7, 7]
    assert found["orders"].size() == 10
