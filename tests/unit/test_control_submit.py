"""Submitting: whose name, which checkpoint, what is written down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_control_logs import talking
from tests.unit.test_control_registry import say
from topo.config import Config
from topo.errors import CheckpointError, RunError
from topo.manage.registry import Registry, RunRecord
from topo.manage.submit import Request, purge, submit

Submit = Callable[..., RunRecord]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home")


@pytest.fixture
def submitted(registry: Registry, tmp_path: Path) -> Submit:
    """Submits a topology whose supervisor is never started."""

    def submitted(conf: dict[str, Any] | None = None, **more: Any) -> RunRecord:
        request = Request(
            name="words",
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
    resumed = ended(submitted(resume=True))
    assert resumed.submission.checkpoint == first.submission.checkpoint
    assert resumed.submission.resumed
    fresh = submitted(resume=False)
    assert fresh.submission.checkpoint != first.submission.checkpoint
    assert not fresh.submission.resumed


def test_nothing_to_resume(submitted: Submit) -> None:
    with pytest.raises(CheckpointError, match="words left no checkpoint to resume"):
        submitted(resume=True)


def test_what_a_completed_run_left_is_not_asked_about(submitted: Submit) -> None:
    first = ended(submitted(), "COMPLETED")
    assert submitted().submission.checkpoint != first.submission.checkpoint


def test_an_environments_directory(submitted: Submit) -> None:
    run = submitted(checkpoint_base="s3://bucket/x")
    assert run.submission.checkpoint == f"s3://bucket/x/words/{run.id}"
    say(run, status="KILLED")
    with pytest.raises(CheckpointError, match="continue it or start again"):
        submitted(checkpoint_base="s3://bucket/x")


def test_a_directory_of_the_users_own(submitted: Submit, tmp_path: Path) -> None:
    own = {"topology.checkpoint.dir": str(tmp_path / "own")}
    first = ended(submitted(own))
    assert first.submission.checkpoint == str(tmp_path / "own")
    with pytest.raises(CheckpointError, match="continue it or start again"):
        submitted(own)
    submitted(own, resume=False)
    assert not (tmp_path / "own").exists()


def test_only_a_checkpoint_is_deleted(submitted: Submit, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    letters.mkdir()
    (letters / "to-mother.txt").write_text("dear")
    with pytest.raises(CheckpointError, match="holds no checkpoint of topo's"):
        submitted({"topology.checkpoint.dir": str(letters)}, resume=False)
    assert (letters / "to-mother.txt").exists()


def test_purging(tmp_path: Path) -> None:
    for place in (tmp_path / "a", tmp_path / "b"):
        place.mkdir()
    assert purge(str(tmp_path / "a"))
    assert purge(f"file://{tmp_path / 'b'}")
    assert list(tmp_path.iterdir()) == []
    assert not purge("s3://bucket/x")
