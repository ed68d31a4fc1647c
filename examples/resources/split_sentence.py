"""A bolt by Storm's protocol, in Python without a library: emits the words of each sentence."""

import json
import os
import sys


def read():
    lines = []
    for line in sys.stdin:
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit(0)


def send(message):
    print(json.dumps(message), "end", sep="\n", flush=True)


handshake = read()
send({"pid": os.getpid()})
while True:
    message = read()
    if message["stream"] == "__heartbeat":
        send({"command": "sync"})
        continue
    for word in message["tuple"][0].split():
        emit = {"command": "emit", "anchors": [message["id"]], "tuple": [word]}
        send({**emit, "need_task_ids": False})
    send({"command": "ack", "id": message["id"]})
