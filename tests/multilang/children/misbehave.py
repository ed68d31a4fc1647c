"""Splits lines until one of them is the name of a way to misbehave."""

import os
import sys
import time
from pathlib import Path

import wire


def garbage(tup):
    wire.write("this is no message\nend\n")


def prints(tup):
    """Print to the stream of the protocol, and wait for what to do."""
    print("connecting to db-1", flush=True)
    time.sleep(60)


def half(tup):
    wire.write('{"command": "em')
    os._exit(0)


def endless(tup):
    while True:
        wire.write("x" * (1 << 20))


def stops(tup):
    """Begin a message that never ends."""
    wire.write('{"command": "emit"')
    time.sleep(60)


def silent(tup):
    time.sleep(60)


def deaf(tup):
    """Say nothing more, and read nothing."""
    os.close(0)
    time.sleep(60)


def mute(tup):
    os.close(1)
    time.sleep(60)


def dies(tup):
    print("the disk is full", file=sys.stderr, flush=True)
    wire.send({"command": "error", "msg": "no room for bad"})
    os._exit(7)


def dies_once(tup):
    """Die, unless an earlier process did."""
    mark = Path(sys.argv[1])
    if not mark.exists():
        mark.touch()
        dies(tup)


def holds(tup):
    """Neither ack nor fail."""
    kept.append(tup)


def lets_go(tup):
    for other in [*kept, tup]:
        text = f"{os.getpid()} {other['tuple'][0]}"
        wire.send({"command": "emit", "anchors": [other["id"]], "tuple": [text]})
        wire.send({"command": "ack", "id": other["id"]})
    kept.clear()


def wide(tup):
    wire.send({"command": "emit", "anchors": [tup["id"]], "tuple": [1, 2]})


def unknown_stream(tup):
    emit = {"command": "emit", "anchors": [tup["id"]], "tuple": [1], "stream": "wrods"}
    wire.send({**emit, "need_task_ids": False})
    wire.send({"command": "ack", "id": tup["id"]})


def large(tup):
    emit = {"command": "emit", "anchors": [tup["id"]], "tuple": ["y" * (3 << 20)]}
    wire.send({**emit, "need_task_ids": False})
    wire.send({"command": "ack", "id": tup["id"]})


kept = []
wire.begin()
for tup in wire.tuples():
    line = tup["tuple"][0]
    way = globals().get(line.partition(" ")[0])
    if callable(way):
        way(tup)
        if way is not dies_once:
            continue
    wire.send({"command": "emit", "anchors": [tup["id"]], "tuple": [len(line)]})
    wire.send({"command": "ack", "id": tup["id"]})
