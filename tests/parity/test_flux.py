"""Topologies in YAML: what is built of a file, or which problems it has and where."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.cases import Case
from tests.parity.areas import Runner, parameters
from topo import Topology
from topo.errors import InvalidTopologyError
from topo.flux.build import Loaded, load_file
from topo.shipping.pickling import load_component
from topo.topology.model import ComponentDef


class Surroundings:
    directory: Path


@pytest.fixture(autouse=True)
def _case_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Surroundings.directory = tmp_path
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.delenv("FLUX_NOT_SET", raising=False)


def run_case(case: Case) -> None:
    settings, expect = case["settings"], case["expect"].get("topo", case["expect"])
    for name, text in settings["files"].items():
        file = Surroundings.directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    filters = []
    if "properties" in settings:
        filters = [Surroundings.directory / "given.properties"]
        filters[0].write_text(settings["properties"], encoding="utf-8")
    path = Surroundings.directory / "t.yaml"
    if "error" in expect or "errors" in expect:
        with pytest.raises(InvalidTopologyError) as caught:
            load_file(path, filters=filters)
        check_problems(caught.value, expect.get("errors", [expect]))
    else:
        check_built(load_file(path, filters=filters), expect)


def check_problems(error: InvalidTopologyError, expected: list[Case]) -> None:
    assert [problem.code for problem in error.problems] == [one["error"] for one in expected]
    for problem, wanted_problem in zip(error.problems, expected, strict=True):
        file, line, column = problem.where.rsplit(":", 2)
        assert file == wanted_problem.get("file", "t.yaml")
        assert int(line) == wanted_problem.get("line", int(line))
        assert int(column) >= 1
        text = f"{problem.message} {problem.hint}"
        assert all(word in text for word in wanted_problem.get("words", [])), text
        assert f"{problem.where}: " in str(error)


def check_built(loaded: Loaded, expect: Case) -> None:
    topology = loaded.topology
    for name, value in expect.items():
        if name == "name":
            assert loaded.name == value or (value is None and loaded.name == expect["default name"])
        elif name == "default name":
            assert loaded.name == value
        elif name == "config":
            assert {key: loaded.conf[key] for key in value} == value
        else:
            kind = name.removesuffix("s")
            listed = [c.id for c in topology.components.values() if c.kind == kind]
            assert set(value) <= set(listed) if value else not listed
            for component, parts in value.items():
                check_component(topology, topology.component(component), parts)


def check_component(topology: Topology, component: ComponentDef, expected: Case) -> None:
    instance = load_component(component)
    for name, value in expected.items():
        if name == "parallelism":
            assert component.parallelism == value
        elif name == "tasks":
            assert component.conf["topology.tasks"] == value
        elif name == "inputs":
            assert inputs_of(component) == value
        elif name == "tasks of a tuple":
            grouping = pickle.loads(component.inputs[0].grouping.custom)
            grouping.prepare(None, None, range(10))
            assert len(grouping.choose_tasks(1, [])) == value
        elif name == "outputs":
            assert {stream.name: list(stream.fields) for stream in component.outputs} == value
        elif name == "conf":
            assert {key: component.conf[key] for key in value} == value
        elif name == "memory_load":
            keys = ("onheap", "offheap")
            prefix = "topology.component.resources."
            assert [component.conf[f"{prefix}{key}.memory.mb"] for key in keys] == value
        elif name == "cpu_load":
            assert component.conf["topology.component.cpu.pcore.percent"] == value
        else:
            check_attribute(getattr(instance, name), value)


def check_attribute(attribute: Any, expected: Any) -> None:
    """Compare a value; a mapping may be for an object with these attributes."""
    if isinstance(expected, dict) and not isinstance(attribute, dict):
        for name, value in expected.items():
            check_attribute(getattr(attribute, name), value)
    else:
        assert attribute == expected or str(attribute) == expected


def inputs_of(component: ComponentDef) -> dict[str, str]:
    return {f"{r.component}/{r.stream}": str(r.grouping) for r in component.inputs}


RUNNERS: dict[str, Runner] = {"flux": run_case}


@pytest.mark.parametrize("case", parameters(RUNNERS))
def test_case(case: Case) -> None:
    RUNNERS[case["kind"]](case)
