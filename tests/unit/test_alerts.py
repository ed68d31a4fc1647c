"""Rules of alerts: Prometheus' own tool runs them, and each has a section for operators."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS
from topo.cli.root import run
from topo.metrics.prometheus import FiguresCollector

TEXT = files("topo").joinpath("metrics/alerts.yml").read_text(encoding="utf-8")
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(TEXT)["groups"] for rule in group["rules"]
}


def series(name: str, **labels: str) -> str:
    """Return the name of a series of the topology `words`, as Prometheus writes it."""
    pairs = {"topology": "words", **labels}.items()
    return f"topo_{name}{{{','.join(f'{key}={json.dumps(text)}' for key, text in pairs)}}}"


def of_count(name: str, **labels: str) -> str:
    return series(name, component="count", **labels)


def up(status: str) -> str:
    return series("up", status=status)


FIRES: dict[str, dict[str, str]] = {
    "TopologyGone": {up("ACTIVE"): "1x10 stale"},
    "TopologyStalled": {up("STALLED"): "1x300"},
    "TopologyDoesNotStart": {up("STARTING"): "1x300"},
    "TopologyRestarts": {series("restarts_total"): "0+1x300"},
    "TopologyInactive": {up("INACTIVE"): "1x300"},
    "MessagesOld": {series("oldest_pending_seconds"): "61x300"},
    "SourceLagGrows": {of_count("source_lag", partition="0"): "200000+9x300"},
    "MessagesFail": {of_count("tuples_failed_total", reason="timeout"): "0+1x300"},
    "MessagesDead": {of_count("component_dead_total"): "0+1x300"},
    "BadRecords": {of_count("component_bad_records_total"): "0+1x300"},
    "TuplesLate": {
        of_count("tuples_late_total"): "0+2x300",
        of_count("tuples_executed_total"): "0+100x300",
    },
    "BoltFull": {of_count("capacity"): "0.95x300"},
    "UserErrors": {of_count("errors_total", kind="failed"): "0+1x300"},
}
"""By alert the series with which it fires, a sample a minute."""
QUIET = {
    up("ACTIVE"): "1x300",
    up("STALLED"): "1x4 0x296",
    up("STARTING"): "1x9 0x291",
    up("INACTIVE"): "0x300",
    series("restarts_total"): "2x300",
    series("oldest_pending_seconds"): "59x300",
    of_count("source_lag", partition="0"): "200000-9x300",
    of_count("tuples_failed_total", reason="timeout"): "7x300",
    of_count("component_dead_total"): "7x300",
    of_count("component_bad_records_total"): "7x300",
    of_count("tuples_late_total"): "0+1x300",
    of_count("tuples_executed_total"): "0+200x300",
    of_count("capacity"): "0.85x300",
    of_count("errors_total", kind="failed"): "7x300",
}
"""A topology at its work, with all that does not call for anybody."""


def promtool(place: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed; .ci/servers installs it")
    (place / "topo.rules.yml").write_text(TEXT)
    return subprocess.run(
        [tool, *argv], cwd=place, capture_output=True, text=True, check=False, timeout=60
    )


def world(values: dict[str, str], minutes: int, alerts: list[str]) -> dict[str, Any]:
    """Return a test of promtool: which of all alerts there are after some minutes of these series.

    promtool compares labels and texts as well, so the number of those that fire is asked for.
    """
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in values.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if name in alerts else [],
            }
            for name in RULES
        ],
    }


def test_prometheus_reads_the_rules(tmp_path: Path) -> None:
    checked = promtool(tmp_path, "check", "rules", "topo.rules.yml")
    assert checked.returncode == 0, checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout


def test_prometheus_reads_what_the_dashboard_asks(tmp_path: Path) -> None:
    dashboard = json.loads(files("topo").joinpath("ui/grafana.json").read_text(encoding="utf-8"))
    asked = [
        target["expr"].replace("$__rate_interval", "5m").replace("$__interval", "1m")
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
    assert len(asked) >= 12
    rules = [{"record": f"asked:{number}", "expr": expr} for number, expr in enumerate(asked)]
    document = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "dashboard.yml").write_text(json.dumps(document))
    checked = promtool(tmp_path, "check", "rules", "dashboard.yml")
    assert checked.returncode == 0, checked.stderr


def test_each_alert_fires_by_itself_and_none_without_a_cause(tmp_path: Path) -> None:
    assert FIRES.keys() == RULES.keys()
    tests = [
        world(values, 20 if name == "TopologyGone" else 90, [name])
        for name, values in FIRES.items()
    ]
    tests += [world(QUIET, minutes, []) for minutes in (5, 90, 200)]
    document = {"rule_files": ["topo.rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(document))
    tested = promtool(tmp_path, "test", "rules", "tests.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    document["tests"] = [world(QUIET, 90, ["BoltFull"])]
    (tmp_path / "tests.yml").write_text(json.dumps(document))
    assert promtool(tmp_path, "test", "rules", "tests.yml").returncode != 0, "it can fail"


def test_each_alert_has_a_section_that_it_names() -> None:
    page = (DOCS / "operate" / "alerts.md").read_text(encoding="utf-8")
    assert re.findall("^## (.+)$", page, re.MULTILINE) == list(RULES)
    for name, rule in RULES.items():
        assert rule["annotations"]["runbook"] == f"operate/alerts.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_alerts_ask_for_figures_that_are_served() -> None:
    families = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in FiguresCollector([]).collect()
    }
    of_connectors = {
        *("topo_source_lag", "topo_component_bad_records_total", "topo_component_dead_total")
    }
    names = {name for rule in RULES.values() for name in re.findall(r"topo_[a-z_]+", rule["expr"])}
    assert of_connectors <= names
    assert names - families - of_connectors == set()


@pytest.mark.parametrize(("kind", "word"), [("prometheus", "TopologyGone"), ("grafana", "panels")])
def test_they_are_exported(capsys: pytest.CaptureFixture[str], kind: str, word: str) -> None:
    assert run(["export", kind]) == 0
    assert word in capsys.readouterr().out
