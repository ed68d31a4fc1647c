"""A topology by Docker's compose: one service, its settings and its volume."""

from __future__ import annotations

import json
from typing import Any

from topo.cli.exports.request import PROBES, STATE, Export
from topo.config.masters import is_local
from topo.errors import ConfigError

_CONFIG = "/etc/topo/settings.json"
_PROBE = "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/healthz', timeout=5)"


def project(export: Export) -> dict[str, Any]:
    """Return the project of one topology."""
    if not is_local(export.master):
        raise ConfigError(
            f"compose runs one container; got the master {export.master}",
            hint="--master 'local[2]'",
        )
    service: dict[str, Any] = {
        "image": export.image,
        "command": export.arguments(_CONFIG),
        "init": True,
        "restart": "on-failure",
        "stop_grace_period": f"{export.stop_secs}s",
        "mem_limit": f"{export.memory_mib}m",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "ports": [f"127.0.0.1:{PROBES}:{PROBES}"],
        "configs": [{"source": "settings", "target": _CONFIG}],
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _PROBE.format(port=PROBES)],
            "interval": "10s",
            "timeout": "10s",
            "retries": 6,
            "start_period": "120s",
        },
    }
    if export.secret:
        service["env_file"] = [export.secret]
    # A dollar is the start of a variable in these files.
    text = json.dumps(export.settings, indent=2, sort_keys=True).replace("$", "$$")
    service["command"] = [part.replace("$", "$$") for part in service["command"]]
    document: dict[str, Any] = {
        "name": export.label,
        "services": {export.label: service},
        "configs": {"settings": {"content": text + "\n"}},
    }
    if export.has_volume:
        service["volumes"] = [f"state:{STATE}"]
        document["volumes"] = {"state": {}}
    return document
