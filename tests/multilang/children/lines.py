"""A spout that emits so many lines, again those that fail, and logs what is acked."""

import os
import sys

import wire

wire.begin()
waiting = [f"line {number}" for number in range(int(sys.argv[1]))]
while True:
    command = wire.read()
    if isinstance(command, list):
        continue
    if command["command"] == "next" and waiting:
        line = waiting.pop(0)
        wire.send({"command": "emit", "id": line, "tuple": [line], "need_task_ids": False})
    elif command["command"] == "fail":
        waiting.append(command["id"])
    elif command["command"] == "ack" and len(sys.argv) > 2:
        with open(sys.argv[2], "a") as acked:
            print(command["id"], os.getpid(), file=acked)
    wire.send({"command": "sync"})
