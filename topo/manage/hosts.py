"""The hosts that the topologies of a registry run on: places, slots, tasks, owners.

A place is what one slot can run on at the same time as others: a core. Of this machine they are
known, so that free ones can be told. Of a Spark cluster only its master knows them, so that its
line says what topologies use there and leaves the rest open; which executors it gave them, and on
which hosts, their drivers tell. A task has an executor of its own, as in Storm by default.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from topo.config.masters import is_local, local_cores
from topo.errors import TopoError
from topo.manage.answers import asked_of, views_of
from topo.manage.plans import plan_of, slots_of
from topo.manage.processes import memory_of_machine
from topo.manage.records import RunRecord
from topo.manage.views import ClusterView, ExecutorView, HostView, OwnerView, PlacedSlot
from topo.systems import usable_cores

_ASKED_AT_ONCE = 8
_MOST_LOST = 20
"""Of one topology; the latest are shown."""


def cluster_of(runs: Iterable[RunRecord]) -> ClusterView:
    """Return hosts, slots, executors and owners of topologies that are not over."""
    runs = list(runs)
    slots = [slot for run in runs for slot in _slots_of(run)]
    here = _this_machine()
    hosts = {here.host: here}
    for slot in slots:
        hosts.setdefault(slot.host, _elsewhere(slot))
    used = [_used(host, slots) for host in hosts.values()]
    owners = sorted({slot.owner for slot in slots})
    free = [host.free for host in used if host.free is not None]
    return ClusterView(
        hosts=used,
        slots=slots,
        spark_executors=_executors_of(runs),
        owners=[_owner(owner, slots) for owner in owners],
        topologies=len({slot.id for slot in slots}),
        slots_used=len(slots),
        slots_free=sum(free),
        executors=sum(slot.executors for slot in slots),
    )


def submitter_of(run: RunRecord) -> str:
    """Return the name of the user who submitted a run; the number of one without a name."""
    try:
        return run.directory.owner()
    except (KeyError, OSError):
        with suppress(OSError):
            return str(run.directory.stat().st_uid)
        return ""


def _slots_of(run: RunRecord) -> list[PlacedSlot]:
    """Return the slots of a run; of a damaged one those that it asked for, without tasks."""
    submission, owner = run.submission, submitter_of(run)
    host = submission.host if is_local(submission.master) else submission.master
    try:
        tasks = [slot.tasks for slot in slots_of(plan_of(run))]
    except Exception:  # one entry of the registry must not hide the others
        tasks = [{} for _ in range(_asked_slots(run))]
    return [
        PlacedSlot(
            host=host,
            topology=run.name,
            id=run.id,
            status=run.status,
            owner=owner,
            slot=number,
            executors=sum(map(len, of.values())),
            components={component: len(ids) for component, ids in of.items()},
        )
        for number, of in enumerate(tasks)
    ]


def _executors_of(runs: Iterable[RunRecord]) -> list[ExecutorView]:
    """Return the executors of topologies on clusters; of silent drivers there are none."""
    away = [run for run in runs if not is_local(run.submission.master)]
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:  # a driver that hangs holds up one thread
        return [view for views in pool.map(_executors_of_run, away) for view in views]


def _executors_of_run(run: RunRecord) -> list[ExecutorView]:
    documents = asked_of(run, lambda client: client.executors()) or []
    named = [
        {**document, "topology": run.name, "id": run.id, "host": _host_of(document)}
        for document in documents
        if isinstance(document, dict)
    ]
    views = views_of(ExecutorView, named)
    lost = sorted((view for view in views if view.lost_at), key=lambda view: view.lost_at or 0.0)
    return [view for view in views if not view.lost_at] + lost[::-1][:_MOST_LOST]


def _host_of(document: Mapping[str, Any]) -> str:
    return str(document.get("place", "")).rpartition(":")[0]


def _asked_slots(run: RunRecord) -> int:
    if run.submission.workers is not None:
        return run.submission.workers
    with suppress(TopoError):
        return local_cores(run.submission.master)
    return 1


def _this_machine() -> HostView:
    total, available = memory_of_machine()
    try:
        load: float | None = os.getloadavg()[0]
    except OSError:
        load = None
    return HostView(
        host=socket.gethostname(),
        is_here=True,
        places=usable_cores(),
        load=load,
        memory_bytes=total,
        free_memory_bytes=available,
    )


def _elsewhere(slot: PlacedSlot) -> HostView:
    return HostView(slot.host, is_here=False)


def _used(host: HostView, slots: Iterable[PlacedSlot]) -> HostView:
    own = [slot for slot in slots if slot.host == host.host]
    return replace(
        host,
        topologies=len({slot.id for slot in own}),
        slots=len(own),
        free=None if host.places is None else max(0, host.places - len(own)),
        executors=sum(slot.executors for slot in own),
    )


def _owner(owner: str, slots: Iterable[PlacedSlot]) -> OwnerView:
    own = [slot for slot in slots if slot.owner == owner]
    return OwnerView(
        owner, len({slot.id for slot in own}), len(own), sum(slot.executors for slot in own)
    )
