"""Emits the words of each line."""

import wire

wire.begin()
for tup in wire.tuples():
    for word in tup["tuple"][0].split():
        wire.send(
            {"command": "emit", "anchors": [tup["id"]], "tuple": [word], "need_task_ids": False}
        )
    wire.send({"command": "ack", "id": tup["id"]})
