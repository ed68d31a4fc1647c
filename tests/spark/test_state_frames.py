"""The state of a checkpoint as a DataFrame, and a run that begins with what was made of it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.spark.doubles import LONGEST_SECS
from tests.spark.test_checkpoints import Money, payments
from topo import CheckpointError, LocalCluster
from topo.engine.spark.driver.run import SparkRun
from topo.engine.spark.jvm.session import start_session
from topo.state import read_state, write_state

pytestmark = pytest.mark.spark


@pytest.mark.of_batches
def test_state_is_read_corrected_and_begun_with(cluster: LocalCluster, tmp_path: Path) -> None:
    first = {"topology.checkpoint.dir": str(tmp_path / "first"), "topology.workers": 2}
    cluster.submit_topology("t", payments(10), first).await_completion(LONGEST_SECS)
    session = start_session("local[*]", {})

    accounts = read_state(
        session, tmp_path / "first", "balances", "key string, value struct<cents: long>"
    )
    assert {row.key: row.value.cents for row in accounts.collect()} == {
        f"user{key}": sum(range(key, 10, 3)) for key in range(3)
    }
    assert accounts.selectExpr("sum(value.cents) AS all").first()["all"] == sum(range(10))
    text = read_state(session, tmp_path / "first", "balances")
    assert {row.component for row in text.collect()} == {"balances"}
    with pytest.raises(Exception, match=r"the value of key 'user[012]' is no int64"):
        read_state(session, tmp_path / "first", "balances", "key string, value long").collect()

    with pytest.raises(CheckpointError, match="a schema of key is none of a state"):
        read_state(session, tmp_path / "first", "balances", "key string")
    with pytest.raises(CheckpointError, match="holds no savepoint, and no checkpoint"):
        read_state(session, tmp_path / "frist", "balances")
    assert not (tmp_path / "frist").exists()

    corrected = session.createDataFrame(
        [(pickle.dumps("user1"), pickle.dumps(Money(1000)))],
        "pickled_key binary, pickled_value binary",
    )
    saved = tmp_path / "corrected"
    write_state(corrected, saved, component="balances", of=tmp_path / "first", keep=True)
    whole = read_state(session, saved, "balances").drop("key", "value")
    again = write_state(whole, tmp_path / "same", component="balances", of=saved)
    assert again.records("total", 0)

    conf = {"topology.checkpoint.dir": str(tmp_path / "second"), "topology.workers": 2}
    run = SparkRun(
        "t", payments(25), conf, begin={"from": str(again.directory)}, capture=["balances"]
    )
    run.start().await_completion(LONGEST_SECS)
    cents = {user: last for user, last, _ in run.tuples("balances")}
    assert cents["user0"] == sum(range(0, 25, 3))
    assert cents["user1"] == 1000 + sum(range(10, 25, 3))
