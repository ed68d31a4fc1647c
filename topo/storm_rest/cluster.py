"""Storm's documents about the cluster and its owners, and rows about its topologies."""

from __future__ import annotations

import getpass
import platform
import time
from typing import Any
from urllib.parse import quote

from topo.config import SETTINGS
from topo.distribution import VERSION
from topo.manage.api import Management
from topo.manage.views import OwnerView, TopologyRow, TopologyView
from topo.storm_rest import parts

_NO_RESOURCES = {
    "requestedMemOnHeap": 0,
    "requestedMemOffHeap": 0,
    "requestedTotalMem": 0,
    "requestedCpu": 0,
    "assignedMemOnHeap": 0,
    "assignedMemOffHeap": 0,
    "assignedTotalMem": 0,
    "assignedCpu": 0,
    "requestedGenericResources": "",
    "assignedGenericResources": "",
}
_NO_CLUSTER_RESOURCES = {"totalMem": 0, "totalCpu": 0, "availMem": 0, "availCpu": 0}
_NO_LOG_VIEWER = {"logviewerPort": 0, "logviewerScheme": "http"}
NO_LINKS = {"bugtracker-url": None, "central-log-url": None}


def _owner_resources(view: OwnerView) -> dict[str, Any]:
    return {
        "owner": view.owner,
        "totalTopologies": view.topologies,
        "totalExecutors": view.executors,
        "totalWorkers": view.slots,
        "totalTasks": view.executors,
        "totalMemoryUsage": 0,
        "totalCpuUsage": 0,
        "memoryGuarantee": "N/A",
        "cpuGuarantee": "N/A",
        "isolatedNodes": -1,
        "memoryGuaranteeRemaining": "N/A",
        "cpuGuaranteeRemaining": "N/A",
        "totalReqOnHeapMem": 0,
        "totalReqOffHeapMem": 0,
        "totalReqMem": 0,
        "totalReqCpu": 0,
        "totalAssignedOnHeapMem": 0,
        "totalAssignedOffHeapMem": 0,
    }


class ClusterDocuments:
    """Answers about the cluster."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self._started = time.monotonic()

    def configuration(self) -> dict[str, Any]:
        return {key: setting.default for key, setting in SETTINGS.items()}

    def cluster(self) -> dict[str, Any]:
        cluster = self._management.cluster()
        return {
            "user": None,
            "stormVersion": VERSION,
            "stormVersionInfo": {
                "version": VERSION,
                "revision": "",
                "branch": "",
                "date": "",
                "srcChecksum": "",
            },
            "supervisors": len(cluster.hosts),
            "topologies": cluster.topologies,
            "slotsTotal": cluster.slots_used + cluster.slots_free,
            "slotsUsed": cluster.slots_used,
            "slotsFree": cluster.slots_free,
            "executorsTotal": cluster.executors,
            "tasksTotal": cluster.executors,
            "schedulerDisplayResource": False,
            **_NO_CLUSTER_RESOURCES,
            "fragmentedMem": 0,
            "fragmentedCpu": 0,
            "memAssignedPercentUtil": "0.0",
            "cpuAssignedPercentUtil": "0.0",
            "availGenerics": "",
            "totalGenerics": "",
            **NO_LINKS,
        }

    def nimbus(self) -> dict[str, Any]:
        secs = int(time.monotonic() - self._started)
        return {
            "nimbuses": [
                {
                    "host": platform.node(),
                    "port": 0,
                    "status": "Leader",
                    "nimbusUpTime": parts.uptime(secs),
                    "nimbusUpTimeSeconds": secs,
                    "nimbusLogLink": "",
                    "version": VERSION,
                }
            ]
        }

    def supervisors(self) -> dict[str, Any]:
        secs = int(time.monotonic() - self._started)
        return {
            "schedulerDisplayResource": False,
            **_NO_LOG_VIEWER,
            "supervisors": [
                {
                    "id": host.host,
                    "host": host.host,
                    "uptime": parts.uptime(secs),
                    "uptimeSeconds": secs,
                    "blacklisted": False,
                    "slotsTotal": host.slots + (host.free or 0),
                    "slotsUsed": host.slots,
                    "slotsFree": host.free or 0,
                    "version": VERSION,
                    **_NO_CLUSTER_RESOURCES,
                    "usedMem": 0,
                    "usedCpu": 0,
                    "logLink": "",
                    "totalGenericResources": "",
                    "usedGenericResources": "",
                    "availGenericResources": "",
                }
                for host in self._management.cluster().hosts
            ],
        }

    def supervisor(self) -> dict[str, Any]:
        workers = [
            worker
            for row in self.live()
            for worker in self.workers_of(self._management.topology(row.id))
        ]
        return {**self.supervisors(), "workers": workers}

    def owners(self, owner: str | None = None) -> Any:
        cluster = self._management.cluster()
        if owner is None:
            owners = [_owner_resources(each) for each in cluster.owners]
            return {"owners": owners, "schedulerDisplayResource": False}
        nobody = OwnerView(owner, 0, 0, 0)
        resources = next((each for each in cluster.owners if each.owner == owner), nobody)
        own = {slot.id for slot in cluster.slots if slot.owner == owner}
        topologies = [self.summary(row) for row in self.live() if row.id in own]
        return {
            **_owner_resources(resources),
            "topologies": topologies,
            "schedulerDisplayResource": False,
        }

    def ports(self, name: str) -> dict[str, Any]:
        """Return where the workers of a topology listen: a number for each slot."""
        workers = self.workers_of(self._management.topology(name))
        places = [{"host": worker["host"], "port": worker["port"]} for worker in workers]
        return {"hostPortList": places, **_NO_LOG_VIEWER}

    def history(self) -> dict[str, Any]:
        rows = self._management.topologies().topologies
        return {"topo-history": [row.id for row in rows]}

    def live(self) -> list[TopologyRow]:
        """Return the topologies that are not over."""
        return self._management.topologies(everything=False).topologies

    def summary(self, row: TopologyRow | TopologyView) -> dict[str, Any]:
        """Return what Storm says of a topology in every list."""
        secs = int(row.uptime_secs)
        return {
            "id": row.id,
            "encodedId": quote(row.id, safe=""),
            "name": row.name,
            "owner": getpass.getuser(),
            "status": row.status,
            "uptime": parts.uptime(secs),
            "uptimeSeconds": secs,
            "tasksTotal": row.tasks,
            "workersTotal": row.workers or 1,
            "executorsTotal": row.tasks,
            "replicationCount": 1,
            "schedulerInfo": None,
            "topologyVersion": None,
            "stormVersion": VERSION,
            **_NO_RESOURCES,
        }

    def workers_of(self, view: TopologyView) -> list[dict[str, Any]]:
        """Return the workers of a topology: its slots."""
        secs = int(view.uptime_secs)
        return [
            {
                "supervisorId": view.host,
                "host": view.host,
                "port": slot.slot,
                "topologyId": view.id,
                "topologyName": view.name,
                "executorsTotal": sum(map(len, slot.tasks.values())),
                "componentNumTasks": {name: len(tasks) for name, tasks in slot.tasks.items()},
                "uptime": parts.uptime(secs),
                "uptimeSeconds": secs,
                "workerLogLink": f"/#/topology/{quote(view.name, safe='')}/logs",
                "owner": getpass.getuser(),
                "assignedMemOnHeap": 0,
                "assignedMemOffHeap": 0,
                "assignedCpu": 0,
            }
            for slot in self._management.workers(view.id).slots
        ]
