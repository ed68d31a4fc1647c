"""Settings of a topology: Storm's keys, topo's own, Spark's and the user's.

`Config` is the dict users fill, `ConfigView` what components read. Both have a typed property for
every key of the table in `settings`; both refuse any other attribute. A Config checks each value
when it is set, so that a traceback points at the line; `Config.validate` checks a plain mapping.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from topo.config.checks import JSON, check_setting, check_settings
from topo.config.layers import (
    Effective,
    Layer,
    check_layers,
    effective,
    for_component,
    merged,
)
from topo.config.settings import SETTINGS, Setting, Settings, settings_table
from topo.config.slot_range import WORKERS, with_range_apart
from topo.errors import UnknownSettingError, did_you_mean

__all__ = [
    "JSON",
    "SETTINGS",
    "Config",
    "ConfigView",
    "Effective",
    "Layer",
    "Setting",
    "check_layers",
    "effective",
    "for_component",
    "merged",
    "settings_table",
]

_ATTRIBUTES = {setting.attribute for setting in SETTINGS.values()}


def _unknown(name: str) -> UnknownSettingError:
    hint = did_you_mean(name, _ATTRIBUTES) or 'your own settings are keys: conf["my.key"]'
    return UnknownSettingError(f"no setting {name!r}", hint=hint)


def _spark_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Reading(Settings):
    """The base of Config and ConfigView besides the table."""

    __slots__ = ()

    @property
    def spark_settings(self: Mapping[str, Any]) -> dict[str, str]:  # type: ignore[misc]
        """Return the `spark.*` keys as the texts that Spark takes."""
        return {key: _spark_text(value) for key, value in self.items() if key.startswith("spark.")}

    if not TYPE_CHECKING:  # a type checker is to see unknown attributes as errors, too

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):
                raise AttributeError(name)
            raise _unknown(name)


class Config(_Reading, dict[str, Any]):
    """A topology's settings: `conf.message_timeout_secs = 30`, or by key as in Storm."""

    __slots__ = ()

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__()
        self.update(values)

    @staticmethod
    def validate(
        values: Mapping[str, Any],
        *,
        at: str = "",
        component: str = "",
        components: Collection[str] | None = None,
    ) -> list[str]:
        """Check settings from anywhere; raise ConfigError, or return the warnings.

        `at` is named in the error; `component` is the component that sets them for itself;
        `components` are those that `COMPONENT/KEY` may name.
        """
        return check_settings(values, at=at, component=component, components=components)

    def __setitem__(self, key: str, value: Any) -> None:
        check_setting(key, value)
        if key == WORKERS and isinstance(value, Mapping):
            self.pop(key, None)
            super().update(with_range_apart({key: value}))
        else:
            super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self.get(key)  # limits of slots have keys of their own

    def update(  # type: ignore[override]
        self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()
    ) -> None:
        for key, value in dict(values).items():
            self[key] = value

    def __ior__(self, values: Any) -> Config:  # type: ignore[override,misc]
        self.update(values)
        return self

    def copy(self) -> Config:
        return Config(self)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _ATTRIBUTES:
            raise _unknown(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Remove a setting (`del conf.workers`), so that its default applies again."""
        if name not in _ATTRIBUTES:
            raise _unknown(name)
        self.pop(getattr(type(self), name).key, None)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return Config, (dict(self),)

    def __repr__(self) -> str:
        return f"Config({dict(self)!r})"


class ConfigView(_Reading, Mapping[str, Any]):
    """A component's settings, read-only.

    `conf["app.limit"]` is the same as `conf["app"]["limit"]`: TOML makes the latter of
    `app.limit = 1`, unless the key is in quotes.
    """

    __slots__ = ("_values",)

    _values: dict[str, Any]

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

    def __getitem__(self, key: str) -> Any:
        try:
            return self._values[key]
        except KeyError:
            head, dot, rest = key.partition(".") if isinstance(key, str) else (key, "", "")
            table = self._values.get(head) if dot else None
            if not isinstance(table, Mapping):
                raise
            try:
                return ConfigView(table)[rest]
            except KeyError:
                raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise _read_only(name)

    def __setitem__(self, key: str, value: object) -> NoReturn:
        raise _read_only(key)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return ConfigView, (self._values,)

    def __repr__(self) -> str:
        return f"ConfigView({self._values!r})"


def _read_only(name: str) -> TypeError:
    return TypeError(f"a component's settings are read-only; {name!r} cannot be set")
