"""The hosts that the topologies of a registry run on: places, slots, tasks, owners.

A place is what one slot can run on at the same time as others: a core. Of this machine they are
known, so that free ones can be told. Of a Spark cluster only its master knows them, so that its
line says what topologies use there and leaves the rest open; which executors it gave them, and on
which hosts, with which slots, their drivers tell. A task has an executor of its own, as in Storm by
default.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

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
    executors = _executors_of(runs)
    slots = [slot for run in runs for slot in _slots_of(run, places_by_slot(executors, run.id))]
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
        spark_executors=executors,
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


def places_by_slot(executors: Iterable[ExecutorView], run: str) -> dict[int, list[str]]:
    """Return the places of each slot of a run, of which its driver knows."""
    places: dict[int, list[str]] = {}
    for executor in executors:
        if executor.id == run and executor.lost_at is None:
            for slot in executor.slots:
                places.setdefault(slot, []).append(executor.place)
    return places


def host_of(run: RunRecord, places: Iterable[str]) -> str:
    """Return the host of a slot at these places; "" if it is on a cluster that has not said."""
    if is_local(run.submission.master):
        return run.submission.host
    return next(iter(sorted(map(_host, places))), "")


def _slots_of(run: RunRecord, places: Mapping[int, list[str]]) -> list[PlacedSlot]:
    """Return the slots of a run; of a damaged one those that it asked for, without tasks."""
    submission, owner = run.submission, submitter_of(run)
    try:
        tasks = [slot.tasks for slot in slots_of(plan_of(run))]
    except Exception:  # one entry of the registry must not hide the others
        tasks = [{} for _ in range(_asked_slots(run))]
    return [
        PlacedSlot(
            host=host_of(run, places.get(number, ())) or submission.master,
            topology=run.name,
            id=run.id,
            status=run.status,
            owner=owner,
            slot=number,
            executors=sum(map(len, of.values())),
            components={component: len(ids) for component, ids in of.items()},
            places=sorted(places.get(number, ())),
        )
        for number, of in enumerate(tasks)
    ]


def _executors_of(runs: Iterable[RunRecord]) -> list[ExecutorView]:
    """Return the executors of topologies on clusters; of silent drivers there are none."""
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:  # a driver that hangs holds up one thread
        return [view for views in pool.map(executors_of, runs) for view in views]


def executors_of(run: RunRecord) -> list[ExecutorView]:
    """Return the executors that a cluster gives to a run; none on one machine."""
    if is_local(run.submission.master):
        return []
    documents = asked_of(run, lambda client: client.executors()) or []
    named = [
        {
            **document,
            "topology": run.name,
            "id": run.id,
            "host": _host(str(document.get("place", ""))),
        }
        for document in documents
        if isinstance(document, dict)
    ]
    views = views_of(ExecutorView, named)
    lost = sorted((view for view in views if view.lost_at), key=lambda view: view.lost_at or 0.0)
    return [view for view in views if not view.lost_at] + lost[::-1][:_MOST_LOST]


def _host(place: str) -> str:
    return place.rpartition(":")[0]


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
