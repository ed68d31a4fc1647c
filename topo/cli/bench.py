"""`topo bench`: measure, check, and compare with a baseline."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import click

from topo.cli.failures import USER_CODE, usage_error
from topo.cli.output import Output, common_options
from topo.errors import words_of


def _percentage(ctx: click.Context, parameter: click.Parameter, text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        raise usage_error(f"--tolerance takes a percentage such as 10%; got {text!r}") from None
    return value / 100


@click.command()
@click.argument("suites", metavar="[SUITE...]", nargs=-1)
@click.option(
    "--seconds", type=float, default=20, show_default=True, help="Measure for so many seconds."
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Make one figure of so many measurements.",
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Use so many slots; default: the cores."
)
@click.option(
    "-a",
    "--ackers",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Use so many ackers where tuples are tracked.",
)
@click.option(
    "--rate",
    "rates",
    type=click.IntRange(1),
    multiple=True,
    help="Emit so many messages a second (latency, memory).",
)
@click.option(
    "--mode",
    "modes",
    type=click.Choice(["micro-batch", "real-time", "at-once"]),
    multiple=True,
    help="Measure in this mode (latency, memory).",
)
@click.option("--baseline", metavar="FILE", help="Fail if slower than this result of --out.")
@click.option(
    "--tolerance",
    default="10%",
    show_default=True,
    callback=_percentage,
    help="Allow so much slower than the baseline.",
)
@click.option("--force", is_flag=True, help="Compare with another machine's baseline all the same.")
@click.option("--out", "out_file", metavar="FILE", help="Write the JSON to this file as well.")
@common_options()
@click.pass_obj
def bench(
    out: Output,
    suites: tuple[str, ...],
    seconds: float,
    repeat: int,
    workers: int | None,
    ackers: int,
    rates: tuple[int, ...],
    modes: tuple[str, ...],
    baseline: str | None,
    tolerance: float,
    force: bool,
    out_file: str | None,
) -> int:
    """Measure how fast this machine runs topo.

    Each figure is shown beside that of a plain Python loop that does the same work, and each result
    is checked. Exit 1: a result is wrong, or slower than the baseline allows.

    \b
    Example:
      topo bench word-count --seconds 20
    """
    _find_benchmarks()
    from benchmarks import report
    from benchmarks.model import BenchOptions

    names = suites or (report.DEFAULT_SUITE,)
    options = BenchOptions(seconds, repeat, workers, ackers, rates, modes, out.say)
    report.check_suites(names, options)
    before = _read_baseline(baseline) if baseline else None
    machine = report.Machine.this()
    if before is not None:
        report.compare([], before, machine, tolerance, force=force)  # fails before, not after
    runs = report.run_suites(names, options)
    document = report.to_document(runs, machine)
    if out_file:
        Path(out_file).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if out.json:
        out.answer_json(document)
    else:
        out.table(report.COLUMNS, report.table_rows(runs))
    comparisons = []
    if before is not None:
        comparisons = report.compare(runs, before, machine, tolerance, force=force)
    for comparison in comparisons:
        out.note(str(comparison))
    well = all(run.verified for run in runs) and all(c.allowed for c in comparisons)
    return 0 if well else USER_CODE


def _find_benchmarks() -> None:
    """Make the `benchmarks` of topo's checkout importable, which the package does not contain."""
    checkout = Path(__file__).parents[2]
    if (checkout / "benchmarks" / "report.py").exists():
        sys.path.insert(0, str(checkout))
    if importlib.util.find_spec("benchmarks") is None:
        raise usage_error(
            "topo bench needs the benchmarks of topo's source, which are not installed with it",
            hint="git clone topo's source, pip install -e it, and run topo bench there",
        )


def _read_baseline(name: str) -> Any:
    try:
        return json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        words = words_of(error)
        raise usage_error(f"cannot read {name}: {words}", at="--baseline") from None
    except json.JSONDecodeError as error:
        raise usage_error(f"{name} is not valid JSON: {error}", at="--baseline") from None
