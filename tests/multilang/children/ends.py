"""A spout of one line, which then ends by itself."""

import os
import sys

import wire

wire.begin()
lines = ["a line"]
while True:
    command = wire.read()
    if command["command"] == "next":
        if not lines:
            print("no more lines", file=sys.stderr, flush=True)
            os._exit(3)
        wire.send({"command": "emit", "id": 1, "tuple": [lines.pop()], "need_task_ids": False})
    wire.send({"command": "sync"})
