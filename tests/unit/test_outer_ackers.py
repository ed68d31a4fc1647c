"""Ackers that outlive drivers: how a driver, and a later one of the checkpoint, gets at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topo import Config, ConfigError
from topo.engine.spark.driver.ackers import outer_ackers
from topo.runtime.task import full_conf
from topo.tracking.transport import AckerTarget

ADDRESSES = ["10.0.0.1:7070", "[::1]:7071"]


def target(checkpoint: str, kept_token: str = "drawn", **conf: Any) -> AckerTarget | None:
    keys = {f"topology.acker.{name}": value for name, value in conf.items()}
    return outer_ackers("words", full_conf(Config(keys)), checkpoint, lambda: kept_token)


def test_a_later_driver_of_a_checkpoint_is_known_to_them() -> None:
    first, again = (target("abc" * 9, addresses=ADDRESSES) for _ in range(2))
    other = target("cba" * 9, addresses=ADDRESSES)
    assert first is not None
    assert other is not None
    assert first == again
    assert first.addresses == tuple(ADDRESSES)
    assert first.topology != other.topology
    assert "abcabcab" in first.topology
    assert first.token == "drawn"


def test_the_admission_token_comes_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\nmore\n")
    admitted = target("abc" * 9, addresses=ADDRESSES, **{"token.file": str(file)})
    assert admitted is not None
    assert (admitted.admission, admitted.token) == ("secret", "drawn")


def test_without_addresses_or_tracking_there_are_none() -> None:
    assert target("abc") is None
    assert target("abc", addresses=ADDRESSES, executors=0) is None


@pytest.mark.parametrize("wrong", [[], ["host"], ["host:0"], [":7070"], "host:7070", [7070]])
def test_what_is_no_list_of_addresses(wrong: object) -> None:
    with pytest.raises(ConfigError, match="must be a list of HOST:PORT"):
        Config.validate(Config({"topology.acker.addresses": wrong}))
