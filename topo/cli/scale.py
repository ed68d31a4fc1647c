"""`topo scale`: the decisions of a topology that scales by itself."""

from __future__ import annotations

from datetime import datetime

import click

from topo.cli.completion import all_names
from topo.cli.failures import STATUS, CommandError
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs, count, duration
from topo.manage.autoscaling import in_words, scale_of
from topo.manage.documents import plain
from topo.manage.ending import connect
from topo.manage.views import DecisionView, ScaleView

COLUMNS = ["AT", "FOR", "DECISION", "SLOTS", "RATE/s", "TO DO/s", "BUSY", "LAG", "NEEDS", "REASON"]


@click.command()
@click.argument("name", shell_complete=all_names)
@click.option(
    "--dry-run", is_flag=True, help="Decide now, by the figures of this moment, and do nothing."
)
@common_options()
@click.pass_obj
def scale(out: Output, name: str, dry_run: bool) -> None:
    """Show how many slots a topology has decided to have, and why.

    A topology that is submitted with --workers MIN..MAX looks every ten seconds whether it is to
    have more slots or fewer. The last 20 decisions are listed, the latest first; equal ones in a
    row are one, with the latest figures: the tuples that come in each second, those that should be
    done so that what waits is caught up, the part of its time in which a slot is busy, what waits,
    and the slots that this takes.

    \b
    Examples:
      topo scale words
      topo scale words --dry-run
    """
    runs = Runs(out)
    run = runs.find(name, "scale")
    if dry_run and not run.over:
        with connect(run) as client:  # what it wrote last says nothing of this moment
            client.status()
    view = scale_of(run)
    if dry_run:
        _show_next(out, view)
    elif out.json:
        out.answer_json(plain(view))
    else:
        _show(out, view)


def _show_next(out: Output, view: ScaleView) -> None:
    if view.most is None:
        raise CommandError(
            STATUS,
            f"{view.name} does not scale by itself",
            code="scale",
            hint=f"topo rebalance {view.name} -n N; or submit it with --workers MIN..MAX",
        )
    decision = view.next
    if decision is None:
        raise CommandError(
            STATUS,
            f"nothing is known of {view.name} at this moment",
            code="scale",
            hint="it has to be ACTIVE for a moment; topo list",
        )
    if out.json:
        out.answer_json(plain(decision))
        return
    stays = decision.to == decision.slots
    does = "keeps its" if stays else f"would go from {decision.slots} to"
    words = f"{view.name} {does} {decision.to} slots ({decision.verdict}): {decision.reason}"
    out.answer(f"{words}; {in_words(decision)}")


def _show(out: Output, view: ScaleView) -> None:
    if view.most is None:
        out.answer(f"{view.name} does not scale by itself: it was not given --workers MIN..MAX")
        return
    dry = ", decides only" if view.is_dry else ""
    out.answer(f"{view.name}: {view.slots} slots, between {view.least} and {view.most}{dry}")
    if view.decisions:
        out.table(COLUMNS, [_cells(decision) for decision in view.decisions])
    else:
        out.answer("No decisions yet.")


def _cells(decision: DecisionView) -> list[str]:
    stays = decision.to == decision.slots
    return [
        f"{datetime.fromtimestamp(decision.at):%m-%d %H:%M:%S}",
        duration(decision.until - decision.at) if stays or decision.is_dry else "",
        f"{decision.verdict} (dry)" if decision.is_dry else decision.verdict,
        str(decision.slots) if stays else f"{decision.slots} -> {decision.to}",
        count(decision.rate),
        count(decision.demand),
        "-" if decision.busy is None else f"{decision.busy:.0%}",
        count(decision.lag),
        "-" if decision.needed is None else str(decision.needed),
        decision.reason,
    ]
