"""Settings: what is accepted, what is refused and how it says so, and how layers lie."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from topo.config import (
    SETTINGS,
    Config,
    ConfigView,
    Effective,
    Layer,
    check_layers,
    effective,
    for_component,
    merged,
)
from topo.config.secrets import Secret
from topo.config.storm import IGNORED
from topo.errors import ConfigError


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))
def test_every_setting_has_a_property_and_a_valid_default(setting: Any) -> None:
    assert setting.attribute == setting.bare.replace(".", "_")
    assert setting.kind.accepts(setting.default)
    assert setting.meaning.endswith(".")
    conf = Config()
    assert getattr(conf, setting.attribute) == setting.default
    setattr(conf, setting.attribute, setting.default)
    assert conf == {setting.key: setting.default}
    delattr(conf, setting.attribute)
    assert conf == {}


def test_a_property_is_its_key() -> None:
    conf = Config()
    conf.message_timeout_secs = 5
    conf["topology.workers"] = 2
    assert conf == {"topology.message.timeout.secs": 5, "topology.workers": 2}
    assert conf.workers == 2


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        ("topology.wokers", 2, "no key 'topology.wokers'", "did you mean 'topology.workers'?"),
        ("workers", 4, "no key 'workers'", "topology.workers"),
        ("max_spout_pending", 4, "no key 'max_spout_pending'", "topology.max.spout.pending"),
        ("Topology.Workers", 4, "no key 'Topology.Workers'", "did you mean 'topology.workers'?"),
        ("toplogy.workers", 4, "no key 'toplogy.workers'", "did you mean 'topology.workers'?"),
        (
            "topology.kryo.regster",
            [],
            "no key 'topology.kryo.regster'",
            "did you mean 'topology.kryo.register'?",
        ),
        (
            "topology.kafka.brokers.of.mine",
            1,
            "no key 'topology.kafka.brokers.of.mine'",
            "keys that start with 'topology.' are topo's; name your own otherwise",
        ),
        (
            "topology.workers",
            "4",
            'topology.workers must be a whole number of at least 1, or {"min": N, "max": M}, or '
            "null; got '4'",
            "write 4, without quotes",
        ),
        (
            "topology.debug",
            "True",
            "topology.debug must be true or false; got 'True'",
            "write true, without quotes",
        ),
        (
            "topology.workers",
            True,
            'topology.workers must be a whole number of at least 1, or {"min": N, "max": M}, or '
            "null; got True",
            "",
        ),
        (
            "topology.message.timeout.secs",
            0,
            "topology.message.timeout.secs must be a number from 0.001 to 1e+09; got 0",
            "",
        ),
        (
            "topology.uncaught.error",
            "ignore",
            "topology.uncaught.error must be 'stop' or 'fail'; got 'ignore'",
            "",
        ),
        ("mine", {"a": [(1,)]}, "mine['a'][0] is no JSON: (1,), a tuple", "write a list"),
        (
            "mine",
            float("nan"),
            "mine is no JSON: nan, a float",
            "settings are JSON: null, true, numbers, strings, lists and mappings",
        ),
        (
            "spark.x",
            [1],
            "spark.x must be a string, a number or true or false; got [1]",
            "",
        ),
        (3, 1, "a key must be a string; got 3", ""),
    ],
)
def test_what_is_refused(key: Any, value: Any, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as at_once:
        Config()[key] = value
    assert (at_once.value.message, at_once.value.hint) == (message, hint)
    with pytest.raises(ConfigError) as validated:
        Config.validate({key: value}, at="topo.toml [conf]")
    assert (validated.value.message, validated.value.at) == (message, "topo.toml [conf]")


def test_an_unknown_attribute_is_an_error() -> None:
    conf: Any = Config()
    with pytest.raises(ConfigError, match="no setting 'wrkers'; did you mean 'workers'"):
        conf.wrkers = 1
    with pytest.raises(AttributeError, match="no setting 'message_timeout'"):
        _ = conf.message_timeout
    with pytest.raises(ConfigError, match="your own settings are keys"):
        del conf.zzz


@pytest.mark.parametrize(
    "put",
    [
        lambda conf: conf.update({"workers": 1}),
        lambda conf: conf.setdefault("workers", 1),
        lambda conf: conf.__ior__({"workers": 1}),
        lambda conf: Config({"workers": 1}),
        lambda conf: Config([("workers", 1)]),
    ],
)
def test_every_way_in_is_checked(put: Any) -> None:
    with pytest.raises(ConfigError, match="no key 'workers'"):
        put(Config())


def test_what_is_accepted() -> None:
    conf = Config({"mine": {"a": [1, None, "x"]}, "my.path/x": 1})
    conf |= {"topology.tick.tuple.freq.secs": 0.5}
    assert conf.setdefault("mine", 0) == {"a": [1, None, "x"]}
    assert conf.tick_tuple_freq_secs == 0.5
    assert Config.validate(conf) == []


def test_null_ackers_are_the_default_as_in_storm() -> None:
    conf = Config({"topology.acker.executors": None})
    assert Config.validate(conf) == []
    assert conf.acker_executors == ConfigView(conf).acker_executors == 1
    found = effective(Layer("topo.toml", {"topology.acker.executors": 0}), Layer("-c", conf))
    assert found["topology.acker.executors"] == Effective(1, "-c")
    assert effective(Layer("-c", {"topology.workers": None}))["topology.workers"].value is None


def test_storms_own_keys_earn_a_warning_each() -> None:
    assert Config.validate({"topology.worker.childopts": "-Xmx1g", "topology.priority": 3}) == [
        "topology.worker.childopts is Storm's and means nothing on Spark; "
        "set spark.executor.extraJavaOptions",
        "topology.priority is Storm's and means nothing on Spark; tasks are placed by Spark",
    ]
    assert not IGNORED.keys() & SETTINGS.keys()
    assert all(key.startswith(("topology.", "drpc.")) for key in IGNORED)
    assert all(IGNORED.values())


def test_every_topology_key_of_storm_is_known() -> None:
    """`storm_keys.txt` has those of Storm's `Config.java`."""
    keys = (Path(__file__).parent / "storm_keys.txt").read_text(encoding="utf-8").split()
    assert len(keys) > 125
    assert [key for key in keys if key not in SETTINGS and key not in IGNORED] == []
    for key in keys:
        if key in IGNORED:
            assert Config.validate({key: 1}) == [
                f"{key} is Storm's and means nothing on Spark; {IGNORED[key]}"
            ]


def test_what_a_component_may_set() -> None:
    own = {"topology.tick.tuple.freq.secs": 3, "mine": 1, "topology.priority": 2}
    assert len(Config.validate(own, component="count")) == 1
    for key, value in [("topology.workers", 2), ("spark.x", "1")]:
        with pytest.raises(ConfigError, match="component 'count' cannot set it"):
            Config.validate({key: value}, component="count")


def test_a_setting_for_one_component_from_outside() -> None:
    conf = {"topology.debug": False, "count/topology.debug": True, "mine": 1}
    assert for_component(conf, "count", {"mine": 2}) == {"topology.debug": True, "mine": 2}
    assert for_component(conf, "split", {}) == {"topology.debug": False, "mine": 1}
    assert Config.validate(conf, components=["count", "split"]) == []
    with pytest.raises(ConfigError, match=r"no component 'cuont'; did you mean 'count'"):
        Config.validate({"cuont/topology.debug": True}, components=["count", "split"])
    with pytest.raises(ConfigError, match="component 'count' cannot set it"):
        Config({"count/topology.workers": 2})


def test_spark_settings_are_text() -> None:
    conf = Config({"spark.a": True, "spark.b": 2, "spark.c": "x", "mine": 1})
    assert conf.spark_settings == {"spark.a": "true", "spark.b": "2", "spark.c": "x"}
    assert ConfigView(conf).spark_settings == conf.spark_settings


def test_a_config_copies_and_pickles() -> None:
    conf = Config({"topology.workers": 2, "mine": [1]})
    for other in (conf.copy(), copy.deepcopy(conf), pickle.loads(pickle.dumps(conf))):
        assert type(other) is Config
        assert other == conf
    assert json.loads(json.dumps(conf)) == conf


def test_a_view_reads_and_nothing_else() -> None:
    view: Any = ConfigView({"topology.debug": True, "mine": 1})
    assert (view.debug, view["mine"], view.workers, len(view)) == (True, 1, None, 2)
    assert dict(pickle.loads(pickle.dumps(view))) == dict(view)
    with pytest.raises(TypeError, match="read-only; 'mine' cannot be set"):
        view["mine"] = 2
    with pytest.raises(TypeError, match="read-only"):
        view.workers = 2
    with pytest.raises(AttributeError, match="did you mean 'workers'"):
        _ = view.wrkers


def test_layers_the_last_wins_and_is_named() -> None:
    layers = [
        Layer("topo.toml [conf]", {"topology.workers": 2, "mine": 1}),
        Layer("-c", {"mine": 2}),
    ]
    found = effective(*layers)
    assert (found["topology.workers"].value, found["topology.workers"].origin) == (
        2,
        "topo.toml [conf]",
    )
    assert (found["mine"].value, found["mine"].origin) == (2, "-c")
    assert found["topology.debug"].origin == "default"
    assert set(SETTINGS) <= set(found)
    assert merged(*layers) == {"topology.workers": 2, "mine": 2}


def test_layers_are_checked_where_they_stand() -> None:
    with pytest.raises(ConfigError) as refused:
        check_layers([Layer("topo.toml [conf]", {}), Layer("-c workers=4", {"workers": 4})])
    assert refused.value.at == "-c workers=4"
    twice = [Layer("a", {"topology.priority": 1}), Layer("b", {"topology.priority": 2})]
    assert len(check_layers(twice)) == 1


def test_importing_config_is_light() -> None:
    code = "import sys, topo.config; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"click", "rich", "numpy", "grpc", "pyspark"} & set(done.stdout.split())


def test_a_key_with_dots_is_found_in_a_table_too() -> None:
    conf = ConfigView({"app": {"limit": 1, "deep": {"er": 2}}, "app.name": "x", "port": 3})
    assert (conf["app.limit"], conf["app.deep.er"], conf["app.name"]) == (1, 2, "x")
    assert conf["app"] == {"limit": 1, "deep": {"er": 2}}
    assert conf.get("app.none", 7) == 7
    assert "app.limit" in conf
    for missing in ("app.none", "app.limit.x", "port.x", "none"):
        with pytest.raises(KeyError, match=missing):
            conf[missing]


def test_a_secret_in_a_setting_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match=r"is no JSON: \*\*\*, a Secret.*reveal\(\) in open"):
        Config({"api.secret": Secret("abc")})
