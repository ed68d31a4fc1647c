"""topo's part of the checkpoint directory: the plan, the run's id, the last commit.

Files are read and written through Hadoop's file systems, since a checkpoint may be on any of them.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topo.engine.spark.plan import Plan
from topo.errors import CheckpointError
from topo.storage.checkpoints import (
    OWNER_FILE,
    PLAN_FILE,
    REMOVED,
    is_known,
    local_path,
    slots_in,
)
from topo.storage.ownership import Ownership
from topo.storage.recovery import cut_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MICRO_BATCH, REAL_TIME = "micro-batch", "real-time"
"""The values of topology.mode."""


log = logging.getLogger("topo.spark")


class Checkpoint:
    """One checkpoint directory."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.path = path
        jvm: Any = session._jvm
        self._jvm = jvm
        self._root = jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._root.getFileSystem(session._jsc.hadoopConfiguration())

    @property
    def location(self) -> str:
        """The path with its file system, which Hadoop's settings name if the path does not."""
        return str(self._files.makeQualified(self._root).toString())

    def claim(self, topology: str, run: str, sleep: Callable[[float], None]) -> Ownership:
        """Take the checkpoint for this driver, before anything of it is read or changed."""
        directory = local_path(self.location)
        file = None if directory else _OwnerFile(self)
        owned = Ownership(self.path, topology, run, directory=directory, file=file, sleep=sleep)
        return owned.claim()

    def adopt(self, plan: Plan, mode: str = MICRO_BATCH) -> str:
        """Begin a checkpoint, or resume one of the same plan; return the checkpoint's id."""
        written = self.read(PLAN_FILE)
        if written is None:
            self._check_empty()
            checkpoint_id = uuid.uuid4().hex
            document = {"id": checkpoint_id, "plan": plan.as_dict()}
            if mode != MICRO_BATCH:
                document["mode"] = mode
            self.write(PLAN_FILE, json.dumps(document, indent=1))
            return checkpoint_id
        self._recover()
        where = f"{self.path}/{PLAN_FILE}"
        try:
            found = json.loads(written)
            checkpoint_id, before = str(found["id"]), json.dumps(found["plan"])
            made_in = str(found.get("mode", MICRO_BATCH))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"the plan beside the checkpoint cannot be read: {error}",
                at=where,
                hint="start with a fresh checkpoint",
            ) from error
        if made_in != mode:
            raise CheckpointError(
                f"the checkpoint was made in {made_in} mode, and this run is in {mode} mode",
                at=where,
                hint=f"set topology.mode={made_in}, or start with a fresh checkpoint",
            )
        plan.check_same(before, where)
        return checkpoint_id

    def _recover(self) -> None:
        """Take back what a power cut left half written, of a checkpoint on this machine."""
        directory = local_path(self.location)
        lost = cut_back(directory) if directory else None
        if lost is not None:
            whole, last = lost
            log.warning(
                "%s was cut short, as by a power failure: batch %d is the last that is whole, "
                "the %d after it are lost; topology.checkpoint.sync keeps that from happening",
                self.path,
                whole,
                last - whole,
            )

    def _check_empty(self) -> None:
        if self.read(REMOVED) is not None:
            what = "was being deleted, and is not deleted yet"
        elif self.next_batch():
            what = "holds a query of Spark's that topo did not start"
        elif foreign := [name for name in self._names() if not is_known(name)]:
            some = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
            what = f"is not empty and holds no checkpoint of topo's ({some})"
        else:
            return
        raise CheckpointError(
            f"{self.path} {what}",
            at=self.path,
            hint="choose another topology.checkpoint.dir, such as a new directory in it",
        )

    def _names(self) -> list[str]:
        if not self._files.exists(self._root):
            return []
        return sorted(each.getPath().getName() for each in self._files.listStatus(self._root))

    def slots(self) -> int | None:
        """Return the number of slots in the stored plan, or None if no plan can be read."""
        return slots_in(self.read(PLAN_FILE) or "")  # `adopt` reports the error

    def next_batch(self) -> int:
        """Return the first batch of the next query: the one after the last committed batch."""
        commits = self._path("commits")
        if not self._files.exists(commits):
            return 0
        names = [status.getPath().getName() for status in self._files.listStatus(commits)]
        return 1 + max((int(name) for name in names if name.isdigit()), default=-1)

    def names_in(self, directory: str) -> list[str]:
        """Return the names of the files in a directory of topo's; empty if it does not exist."""
        path = self._path(directory)
        if not self._files.exists(path):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(path)]

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def replace(self, name: str, text: str) -> None:
        """Write a file over the one that is there; a reader may meet it half written."""
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def read(self, name: str) -> str | None:
        """Return the text of a file in the checkpoint; None if there is none."""
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write atomically: under another name first."""
        directory, _, file = name.rpartition("/")
        unfinished = self._path(f"{directory}/.{file}.{uuid.uuid4().hex}".removeprefix("/"))
        stream = self._files.create(unfinished, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        target = self._path(name)
        self._files.delete(target, False)  # HDFS renames over nothing
        if not self._files.rename(unfinished, target):
            raise CheckpointError(f"{name} cannot be written to {self.path}", at=self.path)


class _OwnerFile:
    """The owner's record in a file system of Hadoop's."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def read(self) -> str | None:
        return self._checkpoint.read(OWNER_FILE)

    def write(self, text: str) -> None:
        self._checkpoint.replace(OWNER_FILE, text)
