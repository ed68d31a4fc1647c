"""What is saved, or sent from one process to another: each format has a number and a golden file.

The number says which format bytes are in, so that a later topo refuses what it would misread. The
golden file shows that a topo reads what an earlier one has written. Whoever writes bytes in a new
place gives the format a line here; what has no number or no golden file yet is an exception.
"""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from typing import NamedTuple

import pytest

from tests.architecture.exceptions import Offenders, check
from tests.architecture.source import ROOT, Source, topo_sources


class Format(NamedTuple):
    """The modules that write a format, the name of its number, and its golden file."""

    modules: tuple[str, ...]
    number: str = ""
    golden: str = ""


_GOLDEN = "tests/unit/golden"
_WORKER, _REALTIME = "engine/spark/worker", "engine/spark/realtime"
_PROCESS = "engine/spark/process"
_EPOCHS = "tests/unit/golden/epochs-tEp1-tSn2"
FORMATS = {
    "state of a task": Format(
        ("runtime/task.py", "runtime/dealing.py", "storage/pickled.py"),
        "topo.storage.format:FORMAT",
        f"{_GOLDEN}/format-3.pickle",
    ),
    "topology and components": Format(("shipping/pickling.py",)),
    "frame": Format(
        ("wire/frame.py", "wire/column.py", "wire/arrow.py"),
        "topo.wire.payload:FRAME",
        f"{_GOLDEN}/frame-1.bin",
    ),
    "header of a batch": Format(
        (f"{_WORKER}/header.py",), "topo.wire.payload:HEADER", f"{_GOLDEN}/header-1.bin"
    ),
    "reference to frames": Format((f"{_WORKER}/spool.py",), "topo.wire.payload:REFERENCE"),
    "marks of time": Format(("runtime/input_times.py",), "topo.wire.payload:MARKS"),
    "rows of datasets": Format(
        ("wire/rows.py",), "topo.wire.payload:ROWS", f"{_GOLDEN}/rows-1.bin"
    ),
    "plan of a checkpoint": Format(("engine/spark/plan.py",), "topo.storage.format:FORMAT"),
    "savepoint": Format(
        ("storage/savepoints.py",),
        "topo.storage.savepoints:FORMAT",
        f"{_GOLDEN}/savepoint-1/savepoint.json",
    ),
    "owner of a checkpoint": Format(("storage/ownership.py",)),
    "journal of failures": Format(("tracking/journal.py",), golden=f"{_GOLDEN}/failures.json"),
    "log of epochs": Format(
        (f"{_REALTIME}/records.py",),
        "topo.engine.spark.realtime.records:EPOCH",
        f"{_EPOCHS}/00000000000000000003.log",
    ),
    "snapshot of epochs": Format(
        (f"{_REALTIME}/records.py",),
        "topo.engine.spark.realtime.records:SNAPSHOT",
        f"{_EPOCHS}/00000000000000000002.snapshot",
    ),
    "mark of the last epoch": Format(
        (f"{_REALTIME}/mark.py",), "topo.engine.spark.realtime.mark:MAGIC", f"{_EPOCHS}/committed"
    ),
    "messages of slots in real-time mode": Format(
        (f"{_REALTIME}/messages.py", f"{_REALTIME}/output.py", f"{_PROCESS}/framing.py")
    ),
    "messages of slots in micro-batches": Format(
        (f"{_WORKER}/relay.py", f"{_WORKER}/slot_process.py", f"{_PROCESS}/slot.py")
    ),
    "start of Spark's workers": Format((f"{_WORKER}/handover.py",)),
    "records of running topologies": Format(("manage/files.py",)),
}
NO_FORMATS = {
    "engine/spark/worker/nursery.py": "reads what handover.py writes",
    "systems.py": "asks the kernel, by its struct flock",
}
_WRITES = {"dumps", "dump", "Pickler"}
_PICKLES = {"pickle", "cloudpickle", "marshal"}


def writers() -> set[str]:
    """Return the modules that pickle or pack bytes."""
    return {source.place for source in topo_sources() if _writes(source)}


def _writes(source: Source) -> bool:
    references = (
        (node.value.id, node.attr)
        for node in source.every(ast.Attribute)
        if isinstance(node.value, ast.Name)
    )
    return any(
        (of in _PICKLES and name in _WRITES) or (of == "struct" and name in ("Struct", "pack"))
        for of, name in references
    )


def incomplete_formats() -> Offenders:
    """Return what each format lacks."""
    lacking = {
        name: [
            *(["golden file"] if not format.golden else []),
            *(["number"] if not format.number else []),
        ]
        for name, format in FORMATS.items()
    }
    return {name: parts for name, parts in lacking.items() if parts}


OFFENDERS = {"formats": incomplete_formats}


def test_every_format_has_a_number_and_a_golden_file() -> None:
    check("formats", OFFENDERS["formats"]())


def test_every_module_that_writes_bytes_writes_a_format_of_the_table() -> None:
    in_table = {module for format in FORMATS.values() for module in format.modules}
    in_rooms = {place for place in writers() if not place.startswith("connectors/")}
    assert in_rooms - in_table - set(NO_FORMATS) == set()
    assert in_table | set(NO_FORMATS) <= {s.place for s in topo_sources()}


@pytest.mark.parametrize("number", sorted({f.number for f in FORMATS.values() if f.number}))
def test_the_number_of_a_format_exists(number: str) -> None:
    module, _, name = number.partition(":")
    assert isinstance(getattr(import_module(module), name), int | bytes)


def test_the_golden_file_of_a_format_exists() -> None:
    goldens = [ROOT / format.golden for format in FORMATS.values() if format.golden]
    assert [path for path in goldens if not path.is_file()] == []


def test_a_golden_checkpoint_names_nothing_of_topo_but_its_tuples() -> None:
    """A topo in which a class is called otherwise cannot read a checkpoint that names it."""
    data = (ROOT / FORMATS["state of a task"].golden).read_bytes()
    names = {name for name in _names_in(data) if name.startswith("topo.")}
    assert names == {"topo.tuples._restore", "topo.tuples.Source"}


def _names_in(data: bytes) -> Iterator[str]:
    """Yield the names of all classes and functions in a pickle, and in those within it."""
    names: list[str] = []

    class Recorder(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> object:
            names.append(f"{module}.{name}")
            return super().find_class(module, name)

    waiting = [Recorder(BytesIO(data)).load()]
    yield from names
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, bytes) and value[:1] == pickle.PROTO:
            yield from _names_in(value)
