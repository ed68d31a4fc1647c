"""A spout that sleeps in its first `next`."""

import time

import wire

wire.begin()
while True:
    command = wire.read()
    if command["command"] == "next":
        time.sleep(60)
    wire.send({"command": "sync"})
