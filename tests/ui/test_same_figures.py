"""Every figure is the same wherever it is shown: tiles, graph, table, charts, JSON, Prometheus.

A driver tells of a topology in which no two figures are equal, so that one in the place of another
cannot pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import count
from typing import Any

import pytest

from tests.ui.browsers import browser
from tests.ui.conftest import Site
from tests.ui.test_metrics import families
from tests.ui.test_pages import shown
from tests.ui.worlds import World
from topo.cli.stats import input_rows
from topo.metrics.figure import Figure, totals_of
from topo.metrics.figures import ACKER, COMPONENT, BatchStats
from topo.metrics.inputs import inputs_of
from topo.metrics.keys import INPUT
from topo.metrics.prometheus import name_of
from topo.metrics.series import Series, sample_of
from topo.runtime.input_seconds import key_of_stream

SPAN_SECS = 10.0
ERRORS = 3


READS = {"split": "words", "count": "split"}


def distinct(kind: str, source: str, numbers: Iterator[int]) -> dict[str, Any]:
    """Return the figures of a task in which each number is another one."""
    task: dict[str, Any] = {"kind": kind, "tasks": 1, "executors": 1, "by_task": {}}
    for figure in COMPONENT:
        number = next(numbers)
        if figure.of not in ("", kind):
            empty: dict[str, Any] = {
                "counters": {},
                "gauges": {},
                "histogram": {},
                "means": {},
                "mean": None,
                "share": None,
            }
            task[figure.name] = empty.get(figure.kind, 0)
        elif figure.kind == "histogram":
            task[figure.name] = {"0.1": number, "+Inf": 2}
        elif figure.by == INPUT:
            key, share = key_of_stream(source, "default"), 1024 if figure.kind == "means" else 1
            task[figure.name] = {key: number / share if share > 1 else number}
        elif figure.kind == "counters":
            task[figure.name] = {"a": number}
        elif figure.kind == "gauges":
            task[figure.name] = {"level": float(number)}
        elif figure.kind in ("mean", "share"):
            task[figure.name] = number / 1024
        else:
            task[figure.name] = number
    for name in ("emitted", "failed"):
        if task[f"{name}_by"]:
            task[f"{name}_by"] = {"a": task[name]}
    return task


def whole(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a component whose tasks count alike: twice as many as one."""
    one = tasks[0]
    figures = dict(one)
    for figure in COMPONENT:
        value = one[figure.name]
        if figure.kind in ("mean", "means", "share") or figure.merge == "max":
            continue
        if isinstance(value, dict):
            figures[figure.name] = {key: len(tasks) * amount for key, amount in value.items()}
        else:
            figures[figure.name] = len(tasks) * value
    return {**figures, "tasks": len(tasks), "by_task": {str(n + 1): t for n, t in enumerate(tasks)}}


@pytest.fixture
def told(world: World) -> dict[str, Any]:
    """The figures of a driver whose history ends with them."""
    world.add("words")
    driver = world.drivers["words"]
    numbers = count(1009, 7)
    components = {
        name: whole([distinct(kind, READS.get(name, ""), numbers)] * 2)
        for name, kind in (("words", "spout"), ("split", "bolt"), ("count", "bolt"))
    }
    batch: dict[str, Any] = {field.name: float(next(numbers)) for field in fields(BatchStats)}
    batch |= {"id": 812, "count": 900, "by_seconds": list(range(15))}
    acker = {figure.name: float(next(numbers)) for figure in ACKER}
    figures = driver.figures | {"components": components, "batch": batch, "acker": acker}
    driver.figures = figures
    before = {name: {**of, **dict.fromkeys(COUNTED, 0)} for name, of in components.items()}
    series, now = Series(), time.time()
    for spans in (2, 1):  # of one point no line can be drawn
        series.add(now - spans * SPAN_SECS, sample_of({**figures, "components": before}, 0))
    series.add(now, sample_of(figures, ERRORS))
    history = series.last(600, now)
    driver.history = lambda window_secs: dict(history)  # type: ignore[method-assign]
    return figures


COUNTED = ("emitted", "executed", "acked", "failed")


def total(components: Mapping[str, Any], kind: str, figure: str) -> float:
    """Return the sum of a figure over the spouts or the bolts."""
    return sum(float(of[figure]) for of in components.values() if of["kind"] == kind)


def samples(exposed: dict[str, Any], figure: Figure, component: str) -> float:
    """Return the sum of what Prometheus has of a component's figure."""
    name = name_of(figure)
    assert name is not None
    family = exposed[name]
    ends = ("_count",) if figure.kind == "histogram" else ("", "_total")
    values = [
        sample.value
        for sample in family.samples
        if sample.labels.get("component") == component and sample.name.removeprefix(name) in ends
    ]
    assert values, (name, component)
    return float(sum(values))


def test_json_prometheus_and_storm_have_the_same_figures(site: Site, told: dict[str, Any]) -> None:
    with site.client("view") as client:
        view = client.get("/api/topologies/words?window=all").json()
        (row,) = client.get("/api/topologies").json()["topologies"]
        storm = client.get(f"/api/v1/topology/{view['id']}?window=:all-time").json()
    assert {key: view[key] for key in ("components", "batch", "acker")} == {
        key: told[key] for key in ("components", "batch", "acker")
    }
    exposed = families(site)
    compared = set()
    for name, of in view["components"].items():
        for figure in COMPONENT:
            if name_of(figure) is None or figure.of not in ("", of["kind"]):
                continue
            expected = of[figure.name]
            if figure.kind == "mean":
                expected = expected * of[figure.per] / figure.scale
            elif figure.kind == "means":
                expected = sum(totals_of(figure, of).values()) / figure.scale
            elif figure.kind == "histogram" or figure.by == INPUT:
                expected = sum(expected.values())
            assert samples(exposed, figure, name) == pytest.approx(expected), (name, figure.name)
            compared.add(figure.name)
    assert len(compared) >= 15
    (seconds,) = (s.value for s in exposed["topo_batch_seconds"].samples if s.name.endswith("_sum"))
    assert seconds == told["batch"]["worked_secs"]
    lag = exposed["topo_oldest_pending_seconds"].samples[0].value
    assert lag == row["lag_secs"] == told["acker"]["lag_secs"]
    for key in ("rows_per_sec", "p50_ms", "p99_ms"):
        assert row[key] == told["batch"][key]
    components = view["components"]
    for key in ("acked", "failed"):
        spouts = total(components, "spout", key)
        assert row[key] == storm["topologyStats"][3][key] == spouts
    (spout,) = storm["spouts"]
    assert spout["emitted"] == components["words"]["emitted"]
    assert spout["completeLatency"] == f"{components['words']['complete_ms']:.3f}"
    for bolt in storm["bolts"]:
        of = components[bolt["boltId"]]
        assert (bolt["executed"], bolt["capacity"]) == (of["executed"], f"{of['capacity']:.3f}")


def test_inputs_have_the_same_figures_in_storms_answers_prometheus_and_commands(
    site: Site, told: dict[str, Any]
) -> None:
    exposed = families(site)
    for bolt, source in READS.items():
        (read,) = inputs_of(told["components"][bolt])
        assert (read.component, read.stream) == (source, "default")
        assert read.execute_ms is not None
        assert read.process_ms is not None
        with site.client("view") as client:
            document = client.get(f"/api/v1/topology/words/component/{bolt}").json()
        (of_storm,) = document["inputStats"]
        assert of_storm["executed"] == read.executed
        assert of_storm["executeLatency"] == f"{read.execute_ms:.3f}"
        assert of_storm["processLatency"] == f"{read.process_ms:.3f}"
        labels = {"topology": "words", "component": bolt, "source": source, "stream": "default"}
        (settled,) = told["components"][bolt]["settled_by_input"].values()
        values = {
            name: next(s.value for s in exposed[f"topo_input_{name}"].samples if s.labels == labels)
            for name in ("tuples", "execute_seconds", "process_seconds")
        }
        assert values == pytest.approx({
            "tuples": read.executed,
            "execute_seconds": read.execute_ms * read.executed / 1000,
            "process_seconds": read.process_ms * settled / 1000,
        })  # fmt: skip
        (row,) = input_rows(told["components"][bolt])
        assert row == [
            source, "default", f"{read.executed:,}",
            *(f"{ms:.3g}" for ms in (read.execute_ms, read.process_ms)),
        ]  # fmt: skip


def test_charts_have_the_figures_of_json(site: Site, told: dict[str, Any]) -> None:
    with site.client("view") as client:
        series = client.get("/api/topologies/words/history").json()["series"]
    last = {name: values[-1] for name, values in series.items()}
    of = told["components"]
    assert last == pytest.approx(
        {
            "emitted_per_sec": total(of, "spout", "emitted") / SPAN_SECS,
            "executed_per_sec": total(of, "bolt", "executed") / SPAN_SECS,
            "acked_per_sec": total(of, "spout", "acked") / SPAN_SECS,
            "failed_per_sec": total(of, "spout", "failed") / SPAN_SECS,
            "errors_per_sec": ERRORS / SPAN_SECS,
            "batch": told["batch"]["id"],
            "batch_ms": told["batch"]["ms"],
            "waited_ms": told["batch"]["waited_ms"],
            "p50_ms": told["batch"]["p50_ms"],
            "p99_ms": told["batch"]["p99_ms"],
            "pending": total(of, "spout", "pending"),
            "held": total(of, "bolt", "held"),
            "lag_secs": told["acker"]["lag_secs"],
            "saved_bytes": sum(each["saved_bytes"] for each in of.values()),
        }
    )


@pytest.mark.server
def test_tiles_graph_tables_and_charts_have_the_figures_of_json(
    site: Site, told: dict[str, Any]
) -> None:
    of, batch = told["components"], told["batch"]
    with browser() as chrome, shown(chrome, site) as watched:
        page = watched.page
        watched.go("topology/words")
        page.locator(".graph a.node").first.wait_for()

        def words(unit: str, value: float) -> str:
            """Return a figure as the pages write it."""
            return str(
                page.evaluate(
                    "([unit, value]) => import('/static/format.js').then((m) => m[unit](value))",
                    [unit, value],
                )
            )

        def tile(label: str) -> str:
            return page.locator(".tile", has=page.get_by_text(label, exact=True)).inner_text()

        pending = words("count", total(of, "spout", "pending"))
        failed = words("count", total(of, "spout", "failed"))
        tiles = {
            "Tuples in": [
                words("rate", batch["rows_per_sec"]),
                words("count", total(of, "spout", "emitted")),
            ],
            "Acked": [words("count", total(of, "spout", "acked"))],
            "Failed": [failed],
            "Pending": [pending],
            "Lag": [words("duration", told["acker"]["lag_secs"])],
            "Batch, median": [words("ms", batch["p50_ms"]), words("ms", batch["p99_ms"])],
            "State": [words("bytes", sum(each["saved_bytes"] for each in of.values()))],
        }
        for label, texts in tiles.items():
            for text in texts:
                assert text in tile(label), label
        spout = page.locator(".graph a.node", has_text="words").text_content() or ""
        assert f"{pending} pending" in spout
        assert f"{failed} failed" in spout
        lines = {
            "Throughput": [
                ("rate", total(of, "spout", "emitted") / SPAN_SECS),
                ("rate", total(of, "bolt", "executed") / SPAN_SECS),
            ],
            "Acked and failed": [
                ("rate", total(of, "spout", "acked") / SPAN_SECS),
                ("rate", total(of, "spout", "failed") / SPAN_SECS),
            ],
            "Batch time": [("ms", batch["p50_ms"]), ("ms", batch["p99_ms"])],
            "Lag": [("duration", told["acker"]["lag_secs"])],
            "Pending and held": [
                ("count", total(of, "spout", "pending")),
                ("count", total(of, "bolt", "held")),
            ],
            "State": [("bytes", sum(each["saved_bytes"] for each in of.values()))],
        }
        assert page.locator(".chart").count() == len(lines)
        for title, values in lines.items():
            chart = page.locator(".chart", has=page.get_by_role("img", name=title, exact=True))
            chart.locator("path.line").first.wait_for(state="attached")
            box = chart.locator("svg").bounding_box()
            assert box is not None
            chart.locator("svg").hover(position={"x": box["width"] - 13, "y": 75})
            chart.locator(".tip:visible").wait_for()
            _, *shown_lines = chart.locator(".tip").inner_text().splitlines()
            ends = [words(unit, value) for unit, value in values]
            assert [line.partition("  ")[2] for line in shown_lines[: len(ends)]] == ends, title
        page.get_by_role("button", name="All", exact=True).click()
        for name, figures in of.items():
            row = page.get_by_role("row").filter(
                has=page.get_by_role("link", name=name, exact=True)
            )
            row.scroll_into_view_if_needed()  # what is out of sight is not drawn anew
            row.get_by_text(words("count", figures["acked"]), exact=True).first.wait_for()
            cells = row.locator("td").all_inner_texts()
            latency = figures["complete_ms"] or figures["execute_ms"]
            assert words("count", figures["emitted"]) in cells
            assert words("count", figures["acked"]) in cells
            assert words("ms", latency) in cells
            assert words("bytes", figures["saved_bytes"]) in cells
        for bolt in READS:
            watched.go(f"topology/words/component/{bolt}")
            page.get_by_role("button", name="All", exact=True).click()
            (read,) = inputs_of(of[bolt])
            panel = page.locator(".panel", has=page.get_by_role("heading", name="Reads"))
            panel.get_by_role("cell", name=words("count", read.executed), exact=True).wait_for()
            cells = panel.locator("tbody tr").locator("td").all_inner_texts()
            assert cells[:2] == [read.component, read.stream]
            assert cells[3:6] == [
                words("count", read.executed),
                words("ms", read.execute_ms or 0.0),
                words("ms", read.process_ms or 0.0),
            ]
