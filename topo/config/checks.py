"""Checks of a mapping of settings: errors and warnings.

A key is one of: a setting of topo's (checked against the table), one of Storm's without a meaning
on Spark (a warning), `spark.*` (passed to Spark), `COMPONENT/KEY` (a setting of one component,
given from outside the code), or the user's own (any JSON value). A key that resembles a setting is
an error, never the user's own: a setting that is silently without effect costs hours.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from topo.config.secrets import Secret
from topo.config.settings import SETTINGS, Setting
from topo.config.storm import IGNORED
from topo.errors import ConfigError, did_you_mean, nearest

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_BARE = {setting.bare: setting.key for setting in SETTINGS.values()}
_RESTS = [*_BARE, *(key.removeprefix("topology.") for key in IGNORED)]
_ADDRESSED = re.compile(r"(.+)/((?:topology|spark)\..*)", re.DOTALL)
_NAME_YOUR_OWN = "keys that start with 'topology.' are topo's; name your own otherwise"


def check_setting(key: object, value: object, *, at: str = "", component: str = "") -> str:
    """Check one setting: raise ConfigError if it is invalid; return a warning, or "".

    `component` names the component that sets it for itself.
    """
    if not isinstance(key, str):
        raise ConfigError(f"a key must be a string; got {key!r}", at=at)
    owner, key = split_owner(key)
    component = component or owner
    setting = SETTINGS.get(key)
    if setting:
        _check_value(setting, value, at)
        if component and not setting.component:
            raise ConfigError(
                f"{key} is a setting of the whole topology; component {component!r} cannot set it",
                at=at,
                hint=f"a component may set {', '.join(_component_keys())} and keys of its own",
            )
        return ""
    _check_json(key, value, at)
    if key in IGNORED:
        return f"{key} is Storm's and means nothing on Spark; {IGNORED[key]}"
    if key.startswith("spark."):
        _check_spark(key, value, at, component)
        return ""
    _check_spelling(key, at)
    return ""


def check_settings(
    values: Mapping[str, object],
    *,
    at: str = "",
    component: str = "",
    components: Collection[str] | None = None,
) -> list[str]:
    """Check every key; return the warnings. With `components`, COMPONENT/KEY must name one."""
    warnings = []
    for key, value in values.items():
        warning = check_setting(key, value, at=at, component=component)
        if warning:
            warnings.append(warning)
        if components is not None:
            _check_owner(key, components, at)
    return warnings


def _check_value(setting: Setting[object], value: object, at: str) -> None:
    if setting.kind.accepts(value):
        return
    hint = ""
    if isinstance(value, str) and setting.kind.parse:
        meant = setting.kind.parse(value)
        if meant is not None and setting.kind.accepts(meant):
            hint = f"write {json.dumps(meant)}, without quotes"
    raise ConfigError(
        f"{setting.key} must be {setting.kind.words}; got {value!r}", at=at, hint=hint
    )


def _check_json(key: str, value: object, at: str) -> None:
    for place, odd in _not_json(value):
        hint = "write a list" if isinstance(odd, tuple | set | frozenset) else ""
        if isinstance(odd, Secret):
            hint = "give it to the component's constructor, and call reveal() in open or prepare"
        hint = hint or "settings are JSON: null, true, numbers, strings, lists and mappings"
        raise ConfigError(
            f"{key}{place} is no JSON: {odd!r}, a {type(odd).__name__}", at=at, hint=hint
        )


def _not_json(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    if value is None or isinstance(value, bool | int | str):
        return
    if isinstance(value, float) and math.isfinite(value):
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_json(item, f"{place}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(name, str):
                yield from _not_json(item, f"{place}[{name!r}]")
            else:
                yield place, name
    else:
        yield place, value


def _check_spark(key: str, value: object, at: str, component: str) -> None:
    if component:
        raise ConfigError(
            f"{key} is a setting of the whole topology; component {component!r} cannot set it",
            at=at,
        )
    if not isinstance(value, str | bool | int | float):
        raise ConfigError(
            f"{key} must be a string, a number or true or false; got {value!r}", at=at
        )


def _check_spelling(key: str, at: str) -> None:
    as_written = key.lower().replace("_", ".")
    if as_written in SETTINGS:
        raise ConfigError(f"no key {key!r}", at=at, hint=f"did you mean {as_written!r}?")
    if as_written in _BARE:
        raise ConfigError(f"no key {key!r}", at=at, hint=_BARE[as_written])
    head, _, rest = key.partition(".")
    if head == "topology":
        match = nearest(rest, _RESTS)  # without the head that all have in common
        hint = f"did you mean 'topology.{match}'?" if match else _NAME_YOUR_OWN
        raise ConfigError(f"no key {key!r}", at=at, hint=hint)
    if rest in _BARE and nearest(head, ["topology"]):
        raise ConfigError(f"no key {key!r}", at=at, hint=f"did you mean {_BARE[rest]!r}?")


def split_owner(key: str) -> tuple[str, str]:
    """Split COMPONENT/KEY, where the component's name may have a slash too; "" for no component."""
    addressed = _ADDRESSED.fullmatch(key)
    return (addressed[1], addressed[2]) if addressed else ("", key)


def _check_owner(key: str, components: Collection[str], at: str) -> None:
    owner, rest = split_owner(key)
    if owner and rest.startswith("topology.") and owner not in components:
        hint = did_you_mean(owner, components) or f"it has: {', '.join(sorted(components))}"
        raise ConfigError(f"{key}: no component {owner!r}", at=at, hint=hint)


def _component_keys() -> list[str]:
    return [setting.key for setting in SETTINGS.values() if setting.component]
