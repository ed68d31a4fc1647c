"""Writes each message that comes, as a line of JSON, to a file; answers heartbeats."""

import json
import os
import sys
from pathlib import Path

import wire

with open(sys.argv[1], "a") as heard:

    def note(message):
        print(json.dumps(message), file=heard, flush=True)

    handshake = wire.begin()
    note(handshake)
    Path(handshake["pidDir"], str(os.getpid())).touch()
    while True:
        message = wire.read()
        note(message)
        if wire.is_heartbeat(message):
            wire.send({"command": "sync"})
