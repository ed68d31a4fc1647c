"""Plays the child's part of a recorded exchange: reads what its parent writes, writes its own.

The parent has ids of its own for tuples; they take the places of the recorded ones, in order.
"""

import json
import os
import sys

import wire


def text(value):
    return value["contains"] if isinstance(value, dict) and "contains" in value else value


def play(steps):
    ids = {}
    wire.read()  # the handshake
    before = [None, None]  # the last two commands
    for step in steps:
        if "parent" in step:
            recorded, message = step["parent"], heard(step["parent"])
            if isinstance(recorded, dict):
                ids[recorded.get("id")] = message.get("id")
            before = [None, None]
            continue
        message = dict(step["child"])
        if before[1] == "sync" and before[0] != "error":  # what comes now is later
            skipped.append(heard(HEARTBEAT))
        before = [before[1], message.get("command")]
        if "exit" in message:
            os._exit(message["exit"])
        if "unreadable" in message:
            wire.write(message["unreadable"] + "\nend\n")
            continue
        if "pid" in message:
            message["pid"] = os.getpid()
        if "msg" in message:
            message["msg"] = text(message["msg"])
        if message.get("command") in ("ack", "fail"):
            message["id"] = ids.get(message["id"], message["id"])
        if "anchors" in message:
            message["anchors"] = [ids[anchor] for anchor in message["anchors"]]
        wire.send(message)


skipped = []
HEARTBEAT = {"stream": "__heartbeat", "task": -1}


def heard(recorded):
    """Return the next message that is like the recorded one."""
    while True:
        message = wire.read()
        if isinstance(message, list) == isinstance(recorded, list) and not is_more(
            recorded, message
        ):
            return message
        if "command" in message:
            wire.send({"command": "sync"})
        elif wire.is_heartbeat(message):
            skipped.append(message)


def is_more(recorded, message):
    """True for a heartbeat or an `activate` that the recorded parent has not sent."""
    if isinstance(recorded, list):
        return False
    if "command" in recorded:
        return message["command"] == "activate" and recorded["command"] != "activate"
    return wire.is_heartbeat(message) and not wire.is_heartbeat(recorded)


with open(sys.argv[1]) as file:
    play(json.load(file))
for _ in skipped:
    wire.send({"command": "sync"})
while True:
    if wire.is_heartbeat(wire.read()):
        wire.send({"command": "sync"})
