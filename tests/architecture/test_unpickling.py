"""Unpickling runs code: every place that does it is listed here with the reason why it may."""

from __future__ import annotations

import ast

from tests.architecture.source import Source, topo_sources

# module below topo/: why nobody but topo can have written those bytes
TRUSTED = {
    "engine/spark/driver/state_frames.py": "a frame that the user's program made of state",
    "engine/spark/process/slot.py": "what is pickled here itself",
    "engine/spark/realtime/coordinator.py": "a slot's stream, which begins with the run's token",
    "engine/spark/realtime/messages.py": "the same stream, and the driver's",
    "engine/spark/realtime/records.py": "the log of epochs in the checkpoint; no class is read",
    "engine/spark/worker/header.py": "a header, out of rows that this run's stages made",
    "engine/spark/worker/relay.py": "a unix socket in a directory that only this user enters",
    "engine/spark/worker/remote.py": "the same socket",
    "engine/spark/worker/report.py": "a report, which an acker takes with the run's token only",
    "engine/spark/worker/slot_process.py": "the driver's pipe",
    "engine/spark/worker/spool.py": "a reference, out of rows that this run's stages made",
    "engine/spark/worker/stage_errors.py": "signed with the run's token",
    "engine/spark/worker/stages.py": "Spark's closure, which the driver made",
    "learning/memory.py": "the state in the checkpoint",
    "learning/score.py": "a model, which came in a frame from a LearnBolt of this topology",
    "runtime/dealing.py": "the state in the checkpoint",
    "runtime/input_times.py": "marks, out of rows that this run's stages made",
    "runtime/out_streams.py": "the topology",
    "runtime/pending_log.py": "the state in the checkpoint",
    "runtime/task.py": "the topology, and the state in the checkpoint",
    "runtime/user_errors.py": "inside an error that is unpickled already",
    "shipping/pickling.py": "the topology",
    "storage/attributes.py": "the state in the checkpoint",
    "storage/chunks.py": "the state in the checkpoint",
    "storage/classes.py": "the state in the checkpoint",
    "storage/saving.py": "the state in the checkpoint",
    "wire/column.py": "a frame, out of rows that this run's stages made",
}
_CALLS = {"loads", "load", "load_saved", "Unpickler"}
_MODULES = {"pickle", "cloudpickle", "_pickle", "dill"}


def unpickles(source: Source) -> bool:
    """Return True if a module refers to something that unpickles."""
    for node in source.every(ast.Attribute):
        is_call = node.attr in _CALLS and isinstance(node.value, ast.Name)
        if is_call and getattr(node.value, "id", "") in _MODULES:
            return True
    return any(
        statement.module in _MODULES | {"topo.storage.classes", "topo.wire.column"}
        and any(alias.name in _CALLS for alias in statement.names)
        for statement in source.every(ast.ImportFrom)
    )


def test_every_place_that_unpickles_says_whom_it_trusts() -> None:
    assert {source.place for source in topo_sources() if unpickles(source)} == set(TRUSTED)


def test_the_rule_sees_what_it_forbids() -> None:
    for text in (
        "import pickle\nx = pickle.loads(y)",
        "from pickle import loads",
        "class A(pickle.Unpickler): pass",
        "from topo.wire.column import dump, load",
    ):
        assert unpickles(Source("a.py", text)), text
    assert not unpickles(Source("a.py", "import json\njson.loads(x)"))
