"""`topo run`: run a topology for a supervisor that is not topo's."""

from __future__ import annotations

import click

from topo.cli.attended import GRACE_SECS, Unwarned, attend, with_checkpoint
from topo.cli.options import (
    ConfOptions,
    TargetCommand,
    checkpoint_option,
    cluster_options,
    conf_options,
    files_named,
    name_option,
    prepare,
    target_argument,
)
from topo.cli.output import Output, common_options
from topo.config import Config
from topo.config.slot_range import fixed_slots
from topo.engine.base import Launch

ENGINE = "spark"


@click.command(cls=TargetCommand)
@target_argument
@name_option
@conf_options
@checkpoint_option(
    "By default it is kept where topology.checkpoint.dir says, or in a directory of the "
    "environment's checkpoint_dir."
)
@cluster_options
@click.option(
    "--grace",
    "grace_secs",
    type=click.FloatRange(min=0),
    default=GRACE_SECS,
    show_default=True,
    metavar="SECS",
    help="After SIGTERM, give messages in flight so long.",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="Write the log to stderr as lines of JSON, or as text.",
)
@common_options()
@click.pass_obj
def run(
    out: Output,
    target: str,
    name: str | None,
    conf: ConfOptions,
    master: str | None,
    checkpoint: str | None,
    py_files: str | None,
    archives: str | None,
    grace_secs: float,
    log_format: str,
) -> int:
    """Run a topology for a container's runtime, systemd or another supervisor.

    It stays in the foreground and is not in `topo list`. SIGTERM ends it in order, with exit code
    0; a failure ends it with another, and whoever started it starts it again: it resumes from its
    checkpoint. With topology.metrics.bind it serves /healthz, /readyz and /metrics.

    \b
    Examples:
      topo run wordcount.py --checkpoint /state/words
      topo run wordcount.py --env prod -c topology.metrics.bind=0.0.0.0:9101
      topo run wordcount.py --master spark://m1:7077 --workers 4 --grace 60
    """
    if log_format == "json":
        out.use_json()  # also if it fails
    prepared = prepare(Unwarned(env=out.env), target, conf, name, command="topo run")
    environment = prepared.project.environment
    named = {Config.checkpoint_dir.key: checkpoint} if checkpoint else {}
    settings = with_checkpoint({**prepared.conf, **named}, environment, prepared.name)
    launch = Launch(
        prepared.name,
        prepared.topology,
        settings,
        master=master or environment.master,
        files=(*environment.py_files, *files_named(py_files, "--py-files")),
        archives=files_named(archives, "--archives"),
    )
    return attend(
        launch,
        engine=ENGINE,
        grace_secs=grace_secs,
        as_json=log_format == "json",
        warnings=(*prepared.warnings, *fixed_slots(settings, "topo run")),
    )
