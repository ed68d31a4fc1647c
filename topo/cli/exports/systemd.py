"""A unit for systemd that runs `topo up`."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from pathlib import Path

_GRACE_SECS = 60
_UNIT = """\
[Unit]
Description=topo: the topologies of {home}
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
NotifyAccess=main
ExecStart={topo} up{options}
Environment=TOPO_HOME={home}
{user}KillMode=mixed
TimeoutStopSec={stop_secs}
Restart=on-failure
RestartSec=5
UMask=0077
NoNewPrivileges=yes
PrivateDevices=yes
ProtectSystem=full
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
LockPersonality=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
CapabilityBoundingSet=

[Install]
WantedBy={target}
"""


def unit(home: Path, *, is_users: bool, standby: bool) -> str:
    """Return the unit for a registry: the machine's, or of this user's own."""
    return _UNIT.format(
        home=home,
        topo=_command(),
        options=" --standby" if standby else "",
        user="" if is_users else f"User={getpass.getuser()}\n",
        stop_secs=_GRACE_SECS + 30,
        target="default.target" if is_users else "multi-user.target",
    )


def _command() -> str:
    """Return the whole path of topo, or of this Python that runs it."""
    beside = Path(sys.executable).with_name("topo")
    path = str(beside) if os.access(beside, os.X_OK) else shutil.which("topo")
    return path or f"{sys.executable} -m topo.cli"
