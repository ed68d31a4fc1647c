"""`fields` and `missing`: a name that is never there is told of, in all sources alike."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import topo.connectors
from tests.connectors.moving import Keeps
from tests.connectors.scripted_kafka import Broker, Reading, ScriptedSpout
from tests.wiring import line
from topo import ComponentError, Spout
from topo.connectors.files import FileSpout
from topo.connectors.kafka import KafkaSpout
from topo.connectors.picking import Picker
from topo.connectors.redis import RedisListSpout
from topo.connectors.spark import SparkSource
from topo.connectors.sql import SqlSpout
from topo.testing import TestCluster


def sources() -> Iterator[type[Any]]:
    """Yield the spouts of all connectors."""
    for module in pkgutil.walk_packages(topo.connectors.__path__, "topo.connectors."):
        for kind in vars(importlib.import_module(module.name)).values():
            if (
                isinstance(kind, type)
                and issubclass(kind, Spout)
                and kind.__module__ == module.name
            ):
                yield kind


def with_fields() -> list[type[Any]]:
    """Return the spouts whose `fields` are keys of records: not columns, nor names alone."""
    others = (SqlSpout, RedisListSpout, SparkSource)
    listed = {
        kind for kind in sources()
        if "fields" in inspect.signature(kind.__init__).parameters and kind not in others
    }  # fmt: skip
    return sorted(listed, key=lambda kind: kind.__name__)


def test_all_sources_with_fields_are_known() -> None:
    assert len(with_fields()) > 10


@pytest.mark.parametrize("kind", with_fields())
def test_every_source_with_fields_says_what_a_missing_one_is(kind: Any) -> None:
    assert inspect.signature(kind.__init__).parameters["missing"].default == "null"


def test_a_name_that_is_never_there_is_told_of_once() -> None:
    told: list[str] = []
    pick = Picker("XSpout", ("user", "usrl"), "null", told.append)
    for number in range(999):
        assert pick({"user": number, "url": "x"}) == [number, None]
    assert told == []
    for _ in range(2000):
        pick({"user": 1, "url": "x"})
    assert told == [
        "XSpout: fields='usrl': none of the first 1,000 records had it; did you mean 'url'?"
    ]


def test_a_name_that_is_there_now_and_then_is_not_told_of() -> None:
    told: list[str] = []
    pick = Picker("XSpout", ("user", "url"), "null", told.append)
    pick({"user": 1})
    pick({"url": 1})
    for _ in range(2000):
        assert pick({}) == [None, None]
    assert told == []


def test_records_of_files_that_lack_a_field(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("".join(json.dumps({"user": n}) + "\n" for n in range(1200)) + '{"url": 1}\n')
    for missing, count in (("null", 1201), ("bad", 1200)):
        with TestCluster() as cluster:
            spout = FileSpout(path, "json", fields="user", missing=missing, on_bad="stream")  # type: ignore[arg-type]
            run = cluster.submit_topology("t", line(spout, Keeps()))
            run.settle()
            assert len(run.tuples("s")) == count
            assert [row[1] for row in run.tuples("s", "bad")] == (
                ["ValueError: there is no 'user'; missing='null' makes it None"]
                if missing == "bad"
                else []
            )
            assert run.errors() == []
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(FileSpout(path, "json", fields="usr"), Keeps()))
        run.settle()
        (error,) = run.errors()
        assert "fields='usr': none of the first 1,000 records had it; did you mean 'user'?" in (
            error.message
        )


def test_messages_of_kafka_that_lack_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(ScriptedSpout, "broker", broker)
    broker.write("t", 0, 2, data=b'{"user": 1}')
    broker.write("t", 0, 1, data=b"{}")
    broker.write("t", 0, 1, data=None)  # a tombstone has no fields, and is not bad for it
    spout = ScriptedSpout("t", value="json", fields="user", missing="bad", on_bad="stream")
    reading = Reading(spout).settle()
    assert reading.run.tuples("kafka") == [[1], [1], [None]]
    (bad,) = reading.run.tuples("kafka", "bad")
    assert "there is no 'user'" in bad[1]


def test_what_else_missing_may_be() -> None:
    with pytest.raises(ComponentError, match="missing='drop'; it is one of 'null', 'bad'"):
        FileSpout("x", "json", fields="a", missing="drop")  # type: ignore[arg-type]
    for named in ({"missing": "fail"}, {"missing_topics": "fail"}):
        spout: Any = KafkaSpout("b:1", "t", **named)  # type: ignore[arg-type]
        assert (spout.translation.missing, spout.missing_topics) == ("null", "fail")
