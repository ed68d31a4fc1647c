"""Limits of slots: how they are written, and what a topology makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from topo import Config, ConfigError
from topo.cli.options import ConfOptions, slots_of
from topo.config.layers import Layer, effective, merged
from topo.config.project import load_conf_file
from topo.config.slot_range import slot_range, with_first_slots
from topo.runtime.task import full_conf

RANGE = {"min": 2, "max": 16}


def test_limits_have_keys_of_their_own_in_a_topologys_settings() -> None:
    conf = Config({"topology.workers": RANGE})
    assert conf == {"topology.workers.min": 2, "topology.workers.max": 16}
    assert conf.workers is None
    assert slot_range(conf) == (2, 16)
    conf.workers = 5
    assert (slot_range(conf), conf.workers) == ((2, 16), 5), "the number of the moment"
    conf["topology.workers"] = {"max": 3}
    assert conf == {"topology.workers.min": 1, "topology.workers.max": 3}
    assert Config().setdefault("topology.workers", RANGE) is None
    assert slot_range(Config()) is None


def test_files_and_options_say_them(tmp_path: Path) -> None:
    path = tmp_path / "slots.toml"
    for text in (
        "topology.workers = {min = 2, max = 16}",
        '"topology.workers" = {min = 2, max = 16}',
        "[topology.workers]\nmin = 2\nmax = 16",
    ):
        path.write_text(text)
        assert load_conf_file(str(path)).values == {"topology.workers": RANGE}
    limits = slots_of(None, None, "2..16")
    assert limits == RANGE
    assert slots_of(None, None, "4") == 4
    (layer,) = ConfOptions(None, (), limits, None, False).layers()
    assert (layer.origin, layer.values) == ("--workers 2..16", {"topology.workers": RANGE})


@pytest.mark.parametrize(
    "early", [{"topology.workers": RANGE}, Config({"topology.workers": RANGE})]
)
@pytest.mark.parametrize(
    ("later", "limits", "slots"),
    [
        ({"topology.workers": {"max": 4}}, (1, 4), None),
        ({"topology.workers.max": 4}, (2, 4), None),
        ({"topology.workers": 4}, None, 4),
        ({"topology.workers": None}, None, None),
        ({"topology.workers.max": None}, None, None),
        ({"topology.workers.max": 4, "topology.workers": 3}, (1, 4), 3),
    ],
)
def test_a_later_layer_has_its_way_however_an_earlier_one_says_its_slots(
    early: dict[str, Any], later: dict[str, Any], limits: tuple[int, int] | None, slots: int | None
) -> None:
    """A file says limits as one setting, and the settings of code have them apart."""
    layers = [
        Layer("topo.toml", {"topology.workers": 8}),
        Layer("code", early),
        Layer("-c", later),
    ]
    conf = Config(merged(*layers))
    assert (slot_range(conf), conf.workers) == (limits, slots)
    shown = {key: each.value for key, each in effective(*layers).items()}
    assert (slot_range(shown), shown["topology.workers"]) == (limits, slots)


@pytest.mark.parametrize(
    "limits", [{"topology.workers": RANGE}, Config({"topology.workers": RANGE})]
)
def test_limits_leave_nothing_of_an_earlier_number(limits: dict[str, Any]) -> None:
    layers = [Layer("topo.toml", {"topology.workers": 32}), Layer("code", limits)]
    assert merged(*layers) == {"topology.workers.min": 2, "topology.workers.max": 16}
    found = effective(*layers)
    assert (found["topology.workers"].value, found["topology.workers"].origin) == (None, "default")
    assert found["topology.workers.max"].origin == "code"


def test_the_fewest_alone_are_no_limits() -> None:
    with pytest.raises(
        ConfigError, match=r"workers\.min is 3, and there is no topology\.workers\.max"
    ):
        slot_range(Config({"topology.workers.min": 3}))


@pytest.mark.parametrize("text", ["x", "2..", "..4", "2..4..6", "2.5"])
def test_an_option_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no number of slots, and no MIN\.\.MAX"):
        slots_of(None, None, text)


@pytest.mark.parametrize(
    "value",
    [{"min": 2}, {"min": 3, "max": 2}, {"min": 0, "max": 2}, {"max": 2, "step": 1}, {}, "2..4"],
)
def test_others_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r'at least 1, or \{"min": N, "max": M\}, or null'):
        Config({"topology.workers": value})


def test_limits_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"workers\.min is 5, and topology\.workers\.max is 4"):
        full_conf({"topology.workers.min": 5, "topology.workers.max": 4})


def test_it_begins_with_the_fewest_or_with_those_that_its_checkpoint_has() -> None:
    assert full_conf({"topology.workers": RANGE})["topology.workers"] == 2
    assert full_conf({})["topology.workers"] is None
    assert full_conf({"topology.workers.max": 4})["topology.workers"] == 1
    assert full_conf({"topology.workers.max": 4, "topology.workers": 3})["topology.workers"] == 3
    conf = {"topology.workers.min": 2, "topology.workers.max": 4}
    slots = [with_first_slots(conf, present)["topology.workers"] for present in (1, 3, 9)]
    assert slots == [2, 3, 4]
