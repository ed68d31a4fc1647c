"""Whatever a file of the registry holds, commands answer, and the other runs are as they were."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from tests.unit.test_control_registry import make, say, supervise
from tests.wiring import line
from topo.cli.root import run as topo
from topo.manage.api import Management
from topo.manage.records import State, Submission, Supervision
from topo.manage.registry import Registry
from topo.testing import FeederSpout

FILES = ("submission.json", "state.json", "supervisor.json", "stats.json", "errors.json",
         "history.json", "batches.json", "wanted.json", "token", "topology.pb")  # fmt: skip

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
names = [*State.__annotations__, *Submission.__annotations__, *Supervision.__annotations__]
damages = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda value: json.dumps(value).encode(), values),
    st.just("deep"),
    st.just(None),  # it is gone
    st.tuples(st.sampled_from(names), values),  # one field of another value
    st.floats(0, 1),  # it was cut
)


def damage(path: Path, how: Any) -> None:
    before = path.read_bytes() if path.exists() else b"{}"
    if how == "deep":
        path.write_bytes(b"[" * 100_000)
    elif how is None:
        path.unlink(missing_ok=True)
    elif isinstance(how, bytes):
        path.write_bytes(how)
    elif isinstance(how, float):
        path.write_bytes(before[: int(how * len(before))])
    else:
        try:
            document = json.loads(before)
        except ValueError:
            document = {}
        path.write_text(json.dumps({**document, how[0]: how[1]}))


@given(file=st.sampled_from(FILES), how=damages)
@examples(60)
def test_no_damage_stops_a_command_or_hides_another_run(
    file: str, how: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    registry = Registry(home)
    topology = line(FeederSpout(["x"])).to_bytes()
    damaged, other = make(registry, "damaged", topology), make(registry, "other", topology)
    say(damaged, status="FAILED", reason="why", since=1.0)
    say(other, status="KILLED", since=2.0)
    supervise(damaged)
    damage(damaged.directory / file, how)
    found = {row.name: row.status for row in Management(registry).topologies().topologies}
    assert found["other"] == "KILLED"
    for command in (
        ["list", "--all"], ["list", "--all", "--json"], ["stats", "damaged"], ["errors", "damaged"],
        ["logs", "damaged"], ["activate", "damaged"], ["kill", "damaged"], ["checkpoints"],
    ):  # fmt: skip
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, TOPO_HOME=str(home)),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            topo(command)
        assert "failed by itself" not in err.getvalue(), (command, err.getvalue())
        if command[:2] == ["list", "--all"]:
            assert "other" in out.getvalue()
