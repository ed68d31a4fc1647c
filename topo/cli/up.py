"""`topo up`: keep the submitted topologies of this machine running, also over its reboots."""

from __future__ import annotations

import signal

import click

from topo.cli.output import Output, common_options
from topo.cli.runs import Runs
from topo.manage.keeping import Keeper, tell_systemd


@click.command()
@click.option("--once", is_flag=True, help="Tell which topologies it would start, and start none.")
@click.option(
    "--standby",
    is_flag=True,
    help="Take over topologies of hosts that share the registry and have fallen silent.",
)
@common_options()
@click.pass_obj
def up(out: Output, once: bool, standby: bool) -> None:
    """Keep the submitted topologies of this machine running.

    It starts those that were neither killed nor completed and whose processes are gone, as after a
    reboot, and supervises them. When it is stopped, they stop behind their last commit, and resume
    when it is started again. `topo export systemd` prints a unit for it. With --standby on several
    hosts that share a registry, one takes over what another ran that has fallen silent.

    \b
    Examples:
      topo up
      topo up --once
      topo up --standby
    """
    keeper = Keeper(Runs(out).registry, tell=out.say, standby=standby)
    if once:
        names = keeper.due()
        if out.json:
            out.answer_json(names)
        else:
            out.answer("\n".join(names) or "Nothing to start.")
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.stop())
    out.say(f"keeping the topologies of {keeper.registry.home} running; Ctrl-C stops them")
    tell_systemd("READY=1")
    keeper.keep()
    tell_systemd("STOPPING=1")
