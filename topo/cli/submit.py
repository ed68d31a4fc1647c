"""`topo submit`: submit a topology to run in the background."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from topo.cli.failures import CommandError, exit_code_of, usage_error
from topo.cli.options import (
    ConfOptions,
    TargetCommand,
    cluster_options,
    conf_options,
    files_named,
    name_option,
    prepare,
    target_argument,
)
from topo.cli.output import Output, common_options
from topo.cli.savepoint import begin_of
from topo.config.masters import is_in_this_machine
from topo.errors import TopoError
from topo.manage.records import RunRecord
from topo.manage.registry import Registry
from topo.manage.submit import SPARK, Request, Resume, await_start
from topo.manage.submit import submit as submit_run
from topo.storage.savepoints import read_savepoint

ENGINE = SPARK


@click.command(cls=TargetCommand)
@target_argument
@name_option
@conf_options
@cluster_options
@click.option(
    "--resume", is_flag=True, help="Resume from the state that a run of this name has left."
)
@click.option("--fresh", is_flag=True, help="Begin without that state.")
@click.option("--from", "savepoint", metavar="DIR", help="Begin with the state in this savepoint.")
@click.option(
    "--rename",
    "renamed",
    multiple=True,
    metavar="OLD=NEW",
    help="Give the state of a component to one of another name; with --from.",
)
@click.option(
    "--drop",
    "dropped",
    multiple=True,
    metavar="COMPONENT",
    help="Leave out the state of a component; with --from.",
)
@click.option(
    "--inactive", is_flag=True, help="Start it with its spouts stopped, until topo activate."
)
@click.option(
    "-w",
    "--wait",
    "wait_secs",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    metavar="SECS",
    help="Wait so long for its first batch; 0: do not wait.",
)
@common_options()
@click.pass_obj
def submit(
    out: Output,
    target: str,
    name: str | None,
    conf: ConfOptions,
    master: str | None,
    py_files: str | None,
    archives: str | None,
    resume: bool,
    fresh: bool,
    savepoint: str | None,
    renamed: tuple[str, ...],
    dropped: tuple[str, ...],
    inactive: bool,
    wait_secs: float,
) -> None:
    """Submit a topology to run in the background.

    It runs until it is killed. If its driver dies, it is restarted from its last batch.

    \b
    Examples:
      topo submit wordcount.py --name words
      topo submit wordcount.py --resume --master spark://m1:7077 --workers 8
    """
    began = time.monotonic()
    left = _fate(resume=resume, fresh=fresh)
    begin = _begin(savepoint, renamed, dropped, left)
    prepared = prepare(out, target, conf, name, command="topo submit")
    environment = prepared.project.environment
    registry = Registry(environment.registry)
    request = Request(
        name=prepared.name,
        topology=prepared.topology,
        conf=prepared.conf,
        master=master or environment.master,
        code_directory=prepared.target.directory,
        active=not inactive,
        resume=left,
        checkpoint_base=environment.checkpoint_dir,
        py_files=(*environment.py_files, *files_named(py_files, "--py-files")),
        archives=files_named(archives, "--archives"),
        env=environment.name,
        origins={key: found.origin for key, found in prepared.effective.items()},
        engine=ENGINE,
        begin=begin,
    )
    run = submit_run(registry, request)
    _say_where_state_is(out, run)
    out.say(f"submitting {run.name} ({run.id}) to {request.master} ...")
    run = _await_start(out, registry, run, wait_secs) if wait_secs else registry.reload(run)
    if out.json:
        out.answer_json(_document(run))
        return
    took = f" after {time.monotonic() - began:.1f} s" if wait_secs else ""
    out.answer(f"submitted {run.name} ({run.id}) to {request.master}: {run.status}{took}")
    out.say(f"  topo stats {run.name} · topo logs -f {run.name} · topo kill {run.name}")


def _begin(
    savepoint: str | None, renamed: tuple[str, ...], dropped: tuple[str, ...], left: Resume
) -> dict[str, Any]:
    """Return what the run begins with; raise if there is no such savepoint."""
    if savepoint is None:
        if renamed or dropped:
            raise usage_error(
                "--rename and --drop say what becomes of a savepoint", hint="--from DIR"
            )
        return {}
    if left == Resume.RESUME:
        raise usage_error(
            "--resume continues a checkpoint, --from begins another: they exclude each other",
            at="--from",
            hint="--resume or --from",
        )
    read_savepoint(Path(savepoint))
    return begin_of(savepoint, renamed, dropped)


def _fate(*, resume: bool, fresh: bool) -> Resume:
    """Return what is to be done with the state that the name has left."""
    if resume and fresh:
        raise usage_error(
            "--resume keeps the state of this name, --fresh begins without it: they exclude "
            "each other",
            at="--fresh",
            hint="--resume or --fresh",
        )
    if fresh:
        return Resume.FRESH
    return Resume.RESUME if resume else Resume.REFUSE


def _say_where_state_is(out: Output, run: RunRecord) -> None:
    """Note the state's place: workers of other machines may not reach a local directory."""
    master, checkpoint = run.submission.master, run.submission.checkpoint
    if not is_in_this_machine(master) and checkpoint.startswith(str(run.directory.parents[1])):
        out.note(
            f"its state is kept in {checkpoint}, which every worker must reach",
            hint="checkpoint_dir in topo.toml, or -c topology.checkpoint.dir=...",
        )


def _await_start(out: Output, registry: Registry, run: RunRecord, secs: float) -> RunRecord:
    goes_on = (
        f"it goes on in the background: topo list, topo logs --driver {run.name}; "
        f"to give up: topo kill {run.name}"
    )
    try:
        run = await_start(registry, run, secs)
    except KeyboardInterrupt:
        out.note(f"{run.name} is submitted all the same, and starts", hint=goes_on)
        raise
    except TimeoutError as error:
        late = registry.reload(run)
        why = f": {late.reason}" if late.reason else ""
        raise CommandError(
            exit_code_of(error),
            f"{error}{why}",
            code="timeout",
            at=str(run.log),
            hint=goes_on,
        ) from None
    if run.status == "FAILED":
        raise StartFailed(run)
    return run


class StartFailed(TopoError):
    """The failure of a topology before its first batch."""

    code = "start-failed"

    def __init__(self, run: RunRecord) -> None:
        super().__init__(
            f"{run.name} FAILED: {run.reason}",
            at=str(run.log),
            hint=run.state.hint or f"topo errors {run.name}",
            code=run.state.code,
        )
        self.user_traceback = run.state.traceback


def _document(run: RunRecord) -> dict[str, object]:
    submission = run.submission
    return {
        "name": run.name,
        "id": run.id,
        "status": run.status,
        "master": submission.master,
        "driver": run.state.address,
        "ui": run.state.ui,
        "checkpoint": submission.checkpoint,
        "workers": submission.workers,
        "tasks": submission.tasks,
    }
