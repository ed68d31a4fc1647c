"""`topo.toml`: the settings and environments of a project, found from here upwards.

    [conf]
    topology.workers = 2

    [env.prod]
    master = "spark://m1:7077"
    registry = "/mnt/topo"
    checkpoint_dir = "/mnt/checkpoints"
    py_files = ["lib.zip"]
    conf = { "topology.workers" = 8 }

`[tool.topo]` of a pyproject.toml holds the same. Relative paths are relative to the file.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from topo.config import SETTINGS, Layer
from topo.config.storm import IGNORED
from topo.errors import ConfigError, did_you_mean, words_of

_usage_error = partial(ConfigError, code="usage")

_ENV_KEYS = {
    "master": str,
    "registry": str,
    "checkpoint_dir": str,
    "py_files": list,
    "conf": dict,
}


_WORDS = {
    "master": "a string",
    "registry": "a string",
    "checkpoint_dir": "a string",
    "py_files": "a list of files",
    "conf": "a table",
}


@dataclass(frozen=True)
class Environment:
    """The master and the directories of one `[env.NAME]`, or the defaults without one."""

    name: str = ""
    master: str = "local[*]"
    registry: Path = field(default_factory=lambda: topo_home())
    checkpoint_dir: str | None = None
    py_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Project:
    """The content of topo.toml for one environment."""

    path: Path | None
    environment: Environment
    layers: tuple[Layer, ...]
    environments: tuple[str, ...]
    """The names of all environments."""

    @property
    def where(self) -> str:
        return str(self.path) if self.path else "no topo.toml"


def topo_home() -> Path:
    """Return the default registry, as an absolute path since drivers use it too."""
    return Path(os.environ.get("TOPO_HOME") or "~/.topo").expanduser().absolute()


def load_project(env: str | None, start: Path | None = None) -> Project:
    """Load the project around `start` (default: the current directory) for environment `env`."""
    path, document = _find(start or Path.cwd())
    if path is None:
        if env:
            raise _usage_error(f"no topo.toml from {Path.cwd()} upwards to find env {env!r} in")
        return Project(None, Environment(), (), ())
    _check_keys(document, ["conf", "env"], str(path), "")
    environments = _table(document, "env", str(path))
    layers = [Layer(f"{path.name} [conf]", flatten(_table(document, "conf", str(path))))]
    if env is None:
        return Project(path, Environment(), tuple(layers), tuple(environments))
    if env not in environments:
        hint = did_you_mean(env, environments)
        hint = hint or f"it has: {', '.join(sorted(environments)) or 'none'}"
        raise _usage_error(f"topo.toml ({path}) has no [env.{env}]", hint=hint)
    table = _table(environments, env, str(path))
    _check_environment(table, str(path), env)
    layers.append(Layer(f"{path.name} [env.{env}.conf]", flatten(table.get("conf", {}))))
    environment = _environment(env, table, path.parent)
    return Project(path, environment, tuple(layers), tuple(environments))


def load_conf_file(name: str) -> Layer:
    """Load the settings of a `--config` file."""
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            document: Any = tomllib.loads(text)
        elif path.suffix == ".json":
            document = json.loads(text)
        else:
            raise _usage_error(f"--config takes a .toml or .json file; got {name!r}")
    except OSError as error:
        words = words_of(error)
        raise _usage_error(f"cannot read {name}: {words}", at="--config") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise _usage_error(f"{name} is not valid {path.suffix[1:].upper()}: {error}") from None
    if not isinstance(document, dict):
        raise _usage_error(f"{name} must hold a mapping of settings", at="--config")
    return Layer(name, flatten(document))


def flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested tables to keys: `topology.workers = 2` without quotes is a table in TOML."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key in ("topology", "spark") and isinstance(value, dict):
            found.update(_leaves(key, value))
        else:
            found[key] = value
    return found


def _leaves(prefix: str, table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{prefix}.{name}"
        if isinstance(value, dict) and key not in SETTINGS and key not in IGNORED:
            found.update(_leaves(key, value))
        else:
            found[key] = value
    return found


def _find(start: Path) -> tuple[Path | None, dict[str, Any]]:
    for directory in (start, *start.parents):
        own = directory / "topo.toml"
        if own.is_file():
            return own, _read(own)
        shared = directory / "pyproject.toml"
        if shared.is_file():
            tool = _read(shared).get("tool", {})
            if "topo" in tool:
                return shared, tool["topo"]
    return None, {}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise _usage_error(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        words = words_of(error)
        raise ConfigError(f"cannot read {path}: {words}", code="project") from None


def _table(document: Mapping[str, Any], key: str, at: str) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise _usage_error(f"{key} must be a table; got {table!r}", at=at)
    return table


def _check_keys(table: Mapping[str, Any], known: list[str], at: str, within: str) -> None:
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known) or f"there are: {', '.join(known)}"
            raise _usage_error(
                f"{within}{'.' if within else ''}{key}: no such key", at=at, hint=hint
            )


def _check_environment(table: Mapping[str, Any], at: str, env: str) -> None:
    _check_keys(table, list(_ENV_KEYS), at, f"env.{env}")
    for key, value in table.items():
        if not isinstance(value, _ENV_KEYS[key]):
            raise _usage_error(f"env.{env}.{key} must be {_WORDS[key]}; got {value!r}", at=at)


def _environment(name: str, table: Mapping[str, Any], base: Path) -> Environment:
    def located(text: str) -> str:
        return text if "://" in text else str(base / Path(text).expanduser())

    registry = table.get("registry")
    checkpoint_dir = table.get("checkpoint_dir")
    return Environment(
        name=name,
        master=table.get("master", "local[*]"),
        registry=Path(located(registry)) if registry else topo_home(),
        checkpoint_dir=located(checkpoint_dir) if checkpoint_dir else None,
        py_files=tuple(located(str(file)) for file in table.get("py_files", [])),
    )
