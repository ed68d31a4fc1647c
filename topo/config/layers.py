"""The layers of settings, in order: files, code, the command line, a component's own.

Every effective value has the layer it came from, for `topo explain --conf`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from topo.config.checks import JSON, check_settings
from topo.config.settings import SETTINGS
from topo.config.slot_range import replaced_by, with_range_apart


@dataclass(frozen=True)
class Layer:
    """The settings from one place; `origin` names that place in errors and `topo explain`."""

    origin: str
    values: Mapping[str, JSON]


@dataclass(frozen=True)
class Effective:
    """The effective value of a setting, and the layer that set it."""

    value: JSON
    origin: str


DEFAULTS = Layer("default", {key: setting.default for key, setting in SETTINGS.items()})


def check_layers(layers: Iterable[Layer], components: Collection[str] | None = None) -> list[str]:
    """Check each layer, so that an error names the place of its key; return the warnings."""
    warnings: list[str] = []
    for layer in layers:
        found = check_settings(layer.values, at=layer.origin, components=components)
        warnings += [warning for warning in found if warning not in warnings]
    return warnings


def effective(*layers: Layer) -> dict[str, Effective]:
    """Return every key with its value and origin: the last layer wins over earlier ones."""
    found: dict[str, Effective] = {}
    for layer in (DEFAULTS, *layers):
        for key in replaced_by(layer.values) & found.keys():
            found[key] = Effective(DEFAULTS.values[key], DEFAULTS.origin)
        for key, value in with_range_apart(layer.values).items():
            setting = SETTINGS.get(key)
            found[key] = Effective(setting.meant(value) if setting else value, layer.origin)
    return found


def merged(*layers: Layer) -> dict[str, JSON]:
    """Merge the layers without the defaults, as the settings that a topology is submitted with."""
    settings: dict[str, JSON] = {}
    for layer in layers:
        for key in replaced_by(layer.values) & settings.keys():
            del settings[key]
        settings.update(with_range_apart(layer.values))
    return settings


def for_component(
    conf: Mapping[str, JSON], component: str, declared: Mapping[str, JSON]
) -> dict[str, JSON]:
    """Return the settings that one component sees.

    Its declared settings win over the topology's; `COMPONENT/KEY`, given from outside, over both.
    """
    prefix = f"{component}/"
    seen = {key: value for key, value in conf.items() if not _is_addressed(key)}
    addressed = {
        key[len(prefix) :]: conf[key]
        for key in conf
        if key.startswith(prefix) and not _is_addressed(key[len(prefix) :])
    }
    return {**seen, **declared, **addressed}


def _is_addressed(key: str) -> bool:
    return "/topology." in key
