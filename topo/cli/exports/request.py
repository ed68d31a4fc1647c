"""What an export is asked for: a topology in an image, and how it is to run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from topo.config import Config

USER = 10001
"""The user of the image, as its Dockerfile has it."""
APP = "/app"
STATE = "/state"
PROBES = 9101
_ODD = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Export:
    """A topology, by the name and the target that it has in the image, and the room it gets."""

    name: str
    target: str
    image: str
    conf: Mapping[str, Any]
    workers: int
    memory_mib: int
    grace_secs: int
    checkpoint: str
    master: str
    secret: str = ""
    args: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name as Kubernetes and DNS take one."""
        return _ODD.sub("-", self.name.lower()).strip("-")[:50].strip("-")

    @property
    def stop_secs(self) -> int:
        """The patience of whoever ends it: what is closed and Spark's end take time as well."""
        return self.grace_secs + 30

    @property
    def has_volume(self) -> bool:
        """True if state is kept in files of the container."""
        return "://" not in self.checkpoint

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, with those that make it reachable for probes and Prometheus."""
        return {
            **self.conf,
            Config.workers.key: self.workers,
            Config.checkpoint_dir.key: self.checkpoint,
            Config.metrics_bind.key: f"0.0.0.0:{PROBES}",
        }

    def arguments(self, config: str) -> list[str]:
        """Return the arguments of topo with which the image runs it, with settings in a file."""
        command = ["run", self.target, "-n", self.name, "--config", config]
        command += ["--master", self.master, "--grace", str(self.grace_secs)]
        return [*command, *(["--", *self.args] if self.args else [])]


def state_directory(name: str) -> str:
    """Return the directory that a topology has in the image's volume."""
    return str(PurePosixPath(STATE) / name)
