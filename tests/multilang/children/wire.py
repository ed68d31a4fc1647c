"""The child's side of the protocol, for the children of these tests; knows nothing of topo."""

import json
import os
import sys


def read():
    """Return the next message; end with the parent."""
    lines = []
    while True:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)


def send(message):
    write(json.dumps(message) + "\nend\n")


def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def begin():
    """Take the handshake, and answer with the pid."""
    handshake = read()
    send({"pid": os.getpid()})
    return handshake


def is_heartbeat(message):
    return isinstance(message, dict) and message.get("stream") == "__heartbeat"


def tuples():
    """Yield the tuples, and answer the heartbeats between them."""
    while True:
        message = read()
        if is_heartbeat(message):
            send({"command": "sync"})
        elif not isinstance(message, list):
            yield message
