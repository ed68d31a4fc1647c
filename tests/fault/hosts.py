"""Hosts of a test: each has a network, processes, a name and temporary files of its own.

A host is a set of Linux namespaces of this machine, on a bridge that is another one; what they
share is the file system, as machines with a common mount do, and not the id by which a machine that
was started is known. So a host can do what no killed
process does: stay silent. A packet to one that is silent is lost, and nobody is told: neighbours
are known for good, so that no "no route to host" comes after some seconds, as it would in one small
network and not in a large one.

A host that vanishes is its first process killed, with which the kernel kills all others there.
Nothing outlives the tests: namespaces end with their processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil

_NETWORK = "10.99.0"
_TOOLS = ("ip", "unshare", "nsenter", "setpriv")
_KINDS = ("--net", "--uts", "--ipc", "--mount", "--pid", "--mount-proc")
# A test that is killed takes its hosts with it.
_UNSHARE = ("setpriv", "--pdeathsig", "KILL", "unshare", *_KINDS, "--fork", "--kill-child")
# Nobody reaps what is left without a parent; that ends with the host.
_INIT = """
echo "$0" > /proc/sys/kernel/hostname &&
mount --bind "$1" /etc/hosts &&
cat /proc/sys/kernel/random/uuid > "$1-$0" &&
mount --bind "$1-$0" /proc/sys/kernel/random/boot_id &&
ip link set lo up &&
trap '' HUP INT TERM && echo up && exec sleep infinity
"""


class Host:
    """One host. `command` begins commands that are to run there."""

    def __init__(self, name: str, address: str, names: Path, directory: Path) -> None:
        self.name, self.address = name, address
        self.directory = directory / name
        self.directory.mkdir()
        self._first = _Namespaces(name, names)

    @property
    def command(self) -> list[str]:
        """The command that enters the host, and finds its own temporary files there."""
        return [*self._first.command, "env", f"TMPDIR={self.directory}"]

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._first.pid

    def processes(self) -> list[psutil.Process]:
        """Return what runs there, save the process that is the host itself."""
        return [each for each in psutil.process_iter() if self._first.has(each.pid)]

    def answers(self, port: int) -> bool:
        """True iff somebody listens there, at the host's address."""
        call = ["bash", "-c", f"</dev/tcp/{self.address}/{port}"]
        return not subprocess.run(
            [*self.command, *call], stderr=subprocess.DEVNULL, check=False
        ).returncode

    def vanish(self) -> None:
        """End all its processes at once, as a loss of power does."""
        self._first.kill()


class _Namespaces:
    """A process in namespaces of its own, which last as long as it does."""

    def __init__(self, name: str, names: Path) -> None:
        self._outer = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", _INIT, name, names],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # of its end by a signal
            text=True,
        )
        assert self._outer.stdout is not None
        with self._outer.stdout as said:
            assert said.readline() == "up\n", f"host {name} does not come up"
        (first,) = psutil.Process(self._outer.pid).children()
        self.pid: int = first.pid

    def has(self, pid: int) -> bool:
        """True iff a process lives in these namespaces, and is not the first one there."""
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return False
            theirs, own = (os.readlink(f"/proc/{each}/ns/pid") for each in (pid, self.pid))
            return theirs == own and pid != self.pid
        return False

    @property
    def command(self) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-i", "-m", "-p"]

    def ip(self, *lines: str) -> None:
        """Have `ip` do this there."""
        batch = "\n".join(lines) + "\n"
        enter = ["nsenter", "-t", str(self.pid), "-n", "ip", "-batch", "-"]
        subprocess.run(enter, input=batch, text=True, check=True)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        self._outer.wait()


class Hosts:
    """Hosts by their names, and the cables between them."""

    def __init__(self, directory: Path, *names: str) -> None:
        self._file = directory / "hosts"
        addresses = {name: f"{_NETWORK}.{number}" for number, name in enumerate(names, 11)}
        known = {"localhost": "127.0.0.1", **addresses}
        self._file.write_text("".join(f"{at} {name}\n" for name, at in known.items()))
        self._switch = _Namespaces("switch", self._file)
        self._hosts: dict[str, Host] = {}
        self._cables: list[subprocess.Popen[str]] = []
        try:
            self._switch.ip("link add name br0 type bridge", "link set dev br0 up")
            for name, address in addresses.items():
                self._hosts[name] = host = Host(name, address, self._file, directory)
                self._switch.ip(
                    f"link add name {name} type veth peer name eth0 netns {host.pid}",
                    f"link set dev {name} master br0 up",
                )
                host._first.ip(f"addr add {address}/24 dev eth0", "link set dev eth0 up")
            self._introduce()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def silence(self, name: str) -> None:
        """Cut a host off: all that it sends, and that is sent to it, is lost."""
        self._switch.ip(f"link set dev {name} nomaster")

    def reach(self, name: str) -> None:
        """Join a silent host again."""
        self._switch.ip(f"link set dev {name} master br0")

    def delay(self, name: str, secs: float) -> None:
        """Have everything take so long to a host, and from it."""
        host = self._hosts[name]
        where = (str(self._switch.pid), str(host.pid), name, _card(host), f"{host.address}/24")
        cable = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.cable", *where, str(secs)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._cables.append(cable)
        assert cable.stdout is not None
        with cable.stdout as said:
            assert said.readline() == "up\n", f"the cable of {name} does not come up"
        self._introduce()

    def close(self) -> None:
        for cable in self._cables:
            cable.kill()
            cable.wait()
        for host in self._hosts.values():
            host.vanish()
        self._switch.kill()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _introduce(self) -> None:
        """Have every host know where the others are, for good."""
        cards = {name: _card(host) for name, host in self._hosts.items()}
        for host in self._hosts.values():
            others = [other for other in self._hosts.values() if other is not host]
            host._first.ip(
                *(
                    f"neigh replace {other.address} lladdr {cards[other.name]} dev eth0 "
                    "nud permanent"
                    for other in others
                )
            )


def _card(host: Host) -> str:
    """Return the hardware address of a host's network card."""
    shown = ["nsenter", "-t", str(host.pid), "-n", "ip", "-brief", "link", "show", "eth0"]
    return subprocess.run(shown, capture_output=True, text=True, check=True).stdout.split()[2]


def why_no_hosts() -> str:
    """Return why this machine cannot have hosts; "" if it can."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"hosts are made by {', '.join(missing)}, which this machine lacks"
    tried = subprocess.run(
        [*_UNSHARE, "ip", "link", "add", "br0", "type", "bridge"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"hosts cannot be made here: {tried.stderr.strip()}" if tried.returncode else ""
