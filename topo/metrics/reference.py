"""The reference page of all figures, written from the table."""

from __future__ import annotations

from topo.metrics.figure import Figure
from topo.metrics.figures import ACKER, BATCH, COMPONENT
from topo.metrics.prometheus import name_of

_HEAD = """# Figures

The figures of a topology, as `topo stats --json` and `run.stats()` name them. This page is written
from the table in `topo/metrics/figures.py`.
"""


def page() -> str:
    """Return docs/reference/figures.md."""
    return (
        _HEAD
        + _section("Of each component, and in `by_task` of each of its tasks", COMPONENT)
        + _section("Of the micro-batches (`batch`)", BATCH)
        + _section("Of the ackers (`acker`)", ACKER)
    )


def _section(title: str, figures: tuple[Figure, ...]) -> str:
    heads = ["name", "kind", "unit", "of", "meaning"]
    rows = [[f"`{f.name}`", _kind(f), f.unit, f.of, f.meaning] for f in figures]
    if figures is COMPONENT:
        heads.append("in Prometheus")
        names = [name_of(figure) for figure in figures]
        rows = [[*row, f"`{name}`" if name else ""] for row, name in zip(rows, names, strict=True)]
    lines = [heads, ["---"] * len(heads), *rows]
    return f"\n## {title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _kind(figure: Figure) -> str:
    is_labelled = figure.by and figure.kind != "histogram"
    return f"{figure.kind} by {figure.by}" if is_labelled else figure.kind


if __name__ == "__main__":
    print(page(), end="")
