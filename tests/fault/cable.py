"""A slow cable between a host of a test and its switch, where the kernel cannot delay packets.

    python -m tests.fault.cable SWITCH_PID HOST_PID NAME CARD ADDRESS SECS

It is a process with a network card (TAP) at each end, which takes the place of the host's cable,
with the same names, hardware address and address; every packet takes so many seconds each way.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
from pathlib import Path

from topo.tracking.clock import monotonic

_NEW_NETWORK = 0x40000000
_SET_INTERFACE, _TAP_WITHOUT_HEAD = 0x400454CA, 0x1002
_MOST_BYTES = 1 << 16
_AT_ONCE = 64


def enter(pid: int) -> None:
    """Go over to the network of a process."""
    with Path(f"/proc/{pid}/ns/net").open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def card_at(name: str) -> int:
    """Make a card in the present network; return its handle."""
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22s", name.encode(), _TAP_WITHOUT_HEAD, b"")
    fcntl.ioctl(handle, _SET_INTERFACE, request)
    return handle


def main(switch: int, host: int, name: str, card: str, address: str, secs: float) -> None:
    enter(host)
    ip("link", "del", "eth0")
    near = card_at("eth0")
    ip("link", "set", "dev", "eth0", "address", card)
    ip("addr", "add", address, "dev", "eth0")
    ip("link", "set", "dev", "eth0", "up")
    enter(switch)
    far = card_at(name)
    ip("link", "set", "dev", name, "master", "br0", "up")
    print("up", flush=True)
    carry({near: far, far: near}, secs)


def carry(ends: dict[int, int], secs: float) -> None:
    """Carry packets from each end to the other, for ever."""
    under_way: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        wait = max(0.0, under_way[0][0] - monotonic()) if under_way else None
        for end in select.select(list(ends), [], [], wait)[0]:
            for _ in range(_AT_ONCE):
                try:
                    packet = os.read(end, _MOST_BYTES)
                except BlockingIOError:
                    break
                number += 1
                heapq.heappush(under_way, (monotonic() + secs, number, ends[end], packet))
        while under_way and under_way[0][0] <= monotonic():
            _, _, end, packet = heapq.heappop(under_way)
            try:
                os.write(end, packet)
            except OSError:  # it is cut off: the packet is lost
                continue


if __name__ == "__main__":
    switch, host, name, card, address, secs = sys.argv[1:]
    main(int(switch), int(host), name, card, address, float(secs))
