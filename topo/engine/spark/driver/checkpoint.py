"""topo's part of the checkpoint directory: the plan, the run's id, the last commit.

Files are read and written through Hadoop's file systems, since a checkpoint may be on any of them.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from topo.config.masters import is_local
from topo.engine.spark.jvm.local_files import keep_private
from topo.engine.spark.plan import Plan
from topo.errors import CheckpointError
from topo.storage.checkpoints import (
    ACKER_TOKEN,
    CLAIM,
    KEPT_IDS,
    OWNER_FILE,
    PLAN_FILE,
    REMOVED,
    Generation,
    generation_in,
    is_known,
    local_path,
    located,
    names_of_others,
    names_to_remove,
    slots_in,
    task_ids_in,
)
from topo.storage.moving import METADATA, move_local, moved_here, swap_local, sync_tree
from topo.storage.ownership import Ownership, Sighting
from topo.storage.recovery import cut_back, incomplete
from topo.storage.trust import ON_A_CLUSTER, ON_ONE_MACHINE
from topo.topology.layout import TASK_IDS
from topo.tracking.security import fresh_token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MICRO_BATCH, REAL_TIME = "micro-batch", "real-time"
"""The values of topology.mode."""
REFUSE, RESUME, FRESH = "refuse", "resume", "fresh"
"""What is to be done with the state that is found; nothing said: resume it if there is any."""
_EPOCHS_BEGUN = "epochs_begun"

Rescale = Callable[[Mapping[str, Any]], None]

log = logging.getLogger("topo.spark")


class Checkpoint:
    """One checkpoint directory."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.path = path
        self._context = session.sparkContext
        jvm: Any = session._jvm
        self._jvm = jvm
        self._root = jvm.org.apache.hadoop.fs.Path(located(path))
        self._files = self._root.getFileSystem(session._jsc.hadoopConfiguration())
        self._ownership: Ownership | None = None
        self._run = ""
        self.generation = Generation()
        """The present one, once the checkpoint is adopted."""

    @property
    def location(self) -> str:
        """The path with its file system, as Hadoop writes it."""
        return str(self._files.makeQualified(self._root).toString())

    def claim(
        self,
        topology: str,
        run: str,
        sleep: Callable[[float], None],
        sighting: Sighting | None = None,
    ) -> Ownership:
        """Take the checkpoint for this driver, before anything of it is read or changed."""
        self._run = run
        directory = local_path(self.location)
        file = None if directory else _OwnerFile(self)
        is_shared = not is_local(self._context.master)
        owned = Ownership(
            self.path,
            topology,
            run,
            directory=directory,
            file=file,
            forbidden=ON_A_CLUSTER if is_shared else ON_ONE_MACHINE,
            sleep=sleep,
            sighting=sighting,
        )
        self._ownership = owned.claim()
        if directory is not None and not is_shared:
            keep_private(self._context, str(directory))
        return self._ownership

    def meet(self, fate: str, topology: str) -> None:
        """Do what was asked for with the state that is here: "refuse", "resume" or "fresh" it.

        Where `submit` has no file system to look at, it leaves that to the driver. A later driver
        of the same run finds the checkpoint that the run has begun, and resumes it.
        """
        if self.read(PLAN_FILE) is None:
            if fate == RESUME:
                raise CheckpointError(
                    f"{topology} left no checkpoint to resume in {self.path}",
                    at=self.path,
                    hint="submit it without --resume",
                )
            if self.read(REMOVED) is not None:
                self._remove_all()
            return
        if fate == RESUME or self.document().get("run") == self._run:
            return
        if fate == FRESH:
            self._files.rename(self._path(PLAN_FILE), self._path(REMOVED))
            self._remove_all()
            return
        raise CheckpointError(
            f"{topology} has a checkpoint in {self.path}: continue it or start again?",
            at=self.path,
            hint="--resume or --fresh",
        )

    def _remove_all(self) -> None:
        """Delete all but the owner's files, which are this driver's; what says so goes last."""
        for name in names_to_remove(self._names()):
            if not name.startswith((OWNER_FILE, CLAIM)):
                self._files.delete(self._path(name), True)
        self._files.delete(self._path(REMOVED), False)

    def adopt(
        self,
        plan: Plan,
        mode: str = MICRO_BATCH,
        rescale: Rescale | None = None,
        begin_with: Callable[[], Mapping[str, Any]] | None = None,
    ) -> str:
        """Begin a checkpoint, or resume one of the same plan; return the checkpoint's id.

        `rescale` makes one of this plan of it if only its number of slots is another; it gets the
        plan before. `begin_with` lays down what a new one begins with, and returns what its plan
        has to say of that.
        """
        written = self.read(PLAN_FILE)
        if written is None:
            self._check_empty()
            if self._ownership is not None:
                self._ownership.note_committed(-1)
            checkpoint_id = uuid.uuid4().hex
            document = {"id": checkpoint_id, **_of_plan(plan), "run": self._run}
            if mode != MICRO_BATCH:
                document["mode"] = mode
            if begin_with is not None:
                document.update(begin_with())
            text = json.dumps(document, indent=1)
            self.write(PLAN_FILE, text)
            self.generation = generation_in(text)
            return checkpoint_id
        self.generation = generation_in(written)
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
        is_rescaled = rescale is not None and plan.is_rescaled(before, deals=plan.keeps_ids)
        if (ids := found.get(KEPT_IDS)) and not plan.keeps_ids:
            raise CheckpointError(
                "the checkpoint was rebalanced to other numbers of tasks, which its topology does "
                "not say",
                at=where,
                hint=f"set {TASK_IDS}={json.dumps(ids)}",
            )
        if not is_rescaled:
            plan.check_same(before, where)
        if mode == MICRO_BATCH:
            self._check_committed()
            self._follow_moves()
        if is_rescaled and rescale is not None:
            rescale(json.loads(before))
        return checkpoint_id

    # -- generations --------------------------------------------------------------------------

    @property
    def query_place(self) -> str:
        """Where the query of the present generation has its log and its state."""
        return self.place_of(self.generation.place)

    def place_of(self, name: str) -> str:
        """Return the place of a file or directory in the checkpoint, with its file system."""
        return f"{self.location}/{name}".removesuffix("/")

    def following(self, first_batch: int | None = None) -> Generation:
        """Return the generation that would follow the last committed batch."""
        first = self.next_batch() if first_batch is None else first_batch
        return Generation(self.generation.number + 1, first)

    def clear(self, name: str) -> None:
        """Delete a directory in the checkpoint, if it is there."""
        self._files.delete(self._path(name), True)

    def sync(self, generation: Generation) -> None:
        """Make durable what a generation begins with, before the plan names it."""
        directory = local_path(self.location)
        if directory is not None:
            sync_tree(directory / generation.place)

    def begin(self, generation: Generation, plan: Plan) -> None:
        """Make this the present generation, which is written: after a crash it is, or is not."""
        document = {
            **self.document(),
            **_of_plan(plan),
            "generation": generation.number,
            "first_batch": generation.first_batch,
        }
        if self._ownership is not None:  # a driver that stood still is not to undo the next one's
            self._ownership.confirm()
        self._swap(PLAN_FILE, json.dumps(document, indent=1))
        self.generation = generation

    def clear_others(self) -> None:
        """Delete what is of other generations, and what this one began with: it has a commit."""
        for name in names_of_others(self._names(), self.generation):
            self.clear(name)
        if self.generation.number:
            self.clear(self.generation.initial)

    def _swap(self, name: str, text: str) -> None:
        """Write a file over another one; whoever reads it finds one of them, whole."""
        unfinished, target = self._path(f".{name}.{uuid.uuid4().hex}"), self._path(name)
        directory = local_path(self.location)
        if directory is not None:
            swap_local(directory / name, text)
            return
        stream = self._files.create(unfinished, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        hadoop, context = self._jvm.org.apache.hadoop.fs, self._context
        rename = hadoop.Options.Rename
        options = context._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        settings = context._jsc.hadoopConfiguration()
        hadoop.FileContext.getFileContext(target.toUri(), settings).rename(
            unfinished, target, options
        )

    def acker_token(self) -> str:
        """Return the topology's token at ackers that outlive this driver; draw it once.

        It is kept, so that a later driver is known to them, for its owner alone: whoever has it
        may ack and fail every message.
        """
        token = (self.read(ACKER_TOKEN) or "").strip()
        if not token:
            token = fresh_token()
            self.write(ACKER_TOKEN, token, is_private=True)
        return token

    def _check_committed(self) -> None:
        """Raise a CheckpointError if batches were committed, and are all gone."""
        committed = self._ownership.committed if self._ownership else -1
        if committed >= 0 and not self.next_batch():
            raise incomplete(self.path, f"batch {committed} was committed, and no commit is there")

    def _follow_moves(self) -> None:
        """Correct what Spark has written of the place of the checkpoint, if that is another now."""
        place = self.query_place
        query = local_path(place)
        is_moved = move_local(query, place) if query else self._moved_remotely(place)
        if is_moved:
            log.info("%s was moved here; the paths in it are corrected", self.path)

    def _moved_remotely(self, location: str) -> bool:
        is_moved = False
        for operator in self.names_in(self._in_query("state")):
            place = self._in_query(METADATA.format(operator=operator))
            for name in self.names_in(place):
                text = self.read(f"{place}/{name}")
                moved = None if text is None else moved_here(text, location)
                if moved is not None:
                    self.replace(f"{place}/{name}", moved)
                    is_moved = True
        return is_moved

    @property
    def has_begun_epochs(self) -> bool:
        """True iff the plan says that there is a log of epochs beside it."""
        return bool(self.document().get(_EPOCHS_BEGUN))

    def note_epochs(self) -> None:
        """Note in the plan that there is a log of epochs, of which nothing may be missing now."""
        if not self.has_begun_epochs:
            document = {**self.document(), _EPOCHS_BEGUN: True}
            self.write(PLAN_FILE, json.dumps(document, indent=1))

    def document(self) -> dict[str, Any]:
        """Return what the plan says; nothing if there is none."""
        document: dict[str, Any] = json.loads(self.read(PLAN_FILE) or "{}")
        return document

    @property
    def task_ids(self) -> dict[str, list[int]] | None:
        """The ids of tasks that the plan keeps, on whatever file system it is; or None."""
        return task_ids_in(json.dumps(self.document()))

    def _recover(self) -> None:
        """Take back what a power cut left half written, of a checkpoint on this machine."""
        directory = local_path(self.location)
        lost = cut_back(directory / self.generation.place) if directory else None
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
        names = self.names_in(self._in_query("commits"))
        last = max((int(name) for name in names if name.isdigit()), default=-1)
        return self.generation.first_batch + last + 1

    def _in_query(self, name: str) -> str:
        return f"{self.generation.place}/{name}".removeprefix("/")

    def exists(self, name: str) -> bool:
        """Return True if there is such a file or directory in the checkpoint."""
        return bool(self._files.exists(self._path(name)))

    def names_in(self, directory: str) -> list[str]:
        """Return the names in a directory of the checkpoint; empty if it does not exist."""
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

    def look(self) -> None:
        """Get ready to be read, without a plan to compare; raise if there is nothing to read."""
        text = self.read(PLAN_FILE)
        if text is None:
            raise CheckpointError(f"{self.path} holds no checkpoint of topo's", at=self.path)
        self.generation = generation_in(text)
        if self.document().get("mode", MICRO_BATCH) == MICRO_BATCH:
            self._recover()
            self._follow_moves()

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

    def write(self, name: str, text: str, *, is_private: bool = False) -> None:
        """Write atomically: under another name first; a private file is its owner's alone."""
        directory, _, file = name.rpartition("/")
        unfinished = self._path(f"{directory}/.{file}.{uuid.uuid4().hex}".removeprefix("/"))
        stream = self._files.create(unfinished, True)
        if is_private:  # before there is anything in it
            owners = self._jvm.org.apache.hadoop.fs.permission.FsPermission("600")
            self._files.setPermission(unfinished, owners)
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


def _of_plan(plan: Plan) -> dict[str, Any]:
    """Return what a checkpoint's document has of a plan."""
    ids = {KEPT_IDS: plan.task_ids()} if plan.keeps_ids else {}
    return {"plan": plan.as_dict(), **ids}
