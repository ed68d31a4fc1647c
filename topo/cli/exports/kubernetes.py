"""A topology on Kubernetes: a Deployment of one pod, and what belongs to it.

There is one replica, since a checkpoint has one driver, and the old pod ends before the new one
begins. With Kubernetes as Spark's master, the driver starts a pod for each slot by its service
account; these reach it by the headless service, at ports that do not change.
"""

from __future__ import annotations

import json
from typing import Any

from topo.cli.exports.request import APP, PROBES, STATE, USER, Export
from topo.config import Config

CONFIG = "/etc/topo/settings.json"
_DRIVER_PORT, _BLOCKS_PORT, _ACKER_PORT = 7078, 7079, 7070
_OVERHEAD = 1.4
"""Of an executor's memory, as topo has it: state is in Python's, beside the JVM's heap."""


def documents(export: Export) -> list[dict[str, Any]]:
    """Return the documents of a topology, in the order in which they are applied."""
    has_executors = export.master.startswith("k8s://")
    parts = [_config(export, has_executors), _account(export, has_executors)]
    if has_executors:
        parts += _rights(export)
    if export.has_volume:
        parts.append(_claim(export))
    return [
        *parts,
        _service(export, has_executors),
        _deployment(export),
        _network(export, has_executors),
        _disruption(export),
    ]


def monitor(export: Export) -> dict[str, Any]:
    """Return what Prometheus' operator scrapes; a cluster without that operator refuses it."""
    spec = {
        "selector": {"matchLabels": _driver_labels(export)},
        "podMetricsEndpoints": [{"port": "probes", "path": "/metrics"}],
    }
    return _document("monitoring.coreos.com/v1", "PodMonitor", export, spec=spec)


def _document(version: str, kind: str, export: Export, **parts: Any) -> dict[str, Any]:
    metadata = {"name": export.label, "labels": _labels(export)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def _labels(export: Export) -> dict[str, str]:
    return {"app.kubernetes.io/name": export.label, "app.kubernetes.io/part-of": "topo"}


def _driver_labels(export: Export) -> dict[str, str]:
    return {**_labels(export), "app.kubernetes.io/component": "driver"}


def _config(export: Export, has_executors: bool) -> dict[str, Any]:
    settings = {**export.settings, **(_executors(export) if has_executors else {})}
    text = json.dumps(settings, indent=2, sort_keys=True)
    return _document("v1", "ConfigMap", export, data={"settings.json": text + "\n"})


def _executors(export: Export) -> dict[str, Any]:
    """Return the settings with which executors are pods that find the driver."""
    heap = int(export.memory_mib / _OVERHEAD)
    return {
        "spark.kubernetes.container.image": export.image,
        "spark.kubernetes.authenticate.driver.serviceAccountName": export.label,
        "spark.kubernetes.executor.label.app.kubernetes.io/name": export.label,
        "spark.kubernetes.executor.label.app.kubernetes.io/part-of": "topo",
        "spark.executor.memory": f"{heap}m",
        "spark.driver.host": export.label,
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": _DRIVER_PORT,
        "spark.blockManager.port": _BLOCKS_PORT,
        Config.acker_bind.key: f"0.0.0.0:{_ACKER_PORT}",
        **export.conf,
    }


def _account(export: Export, has_executors: bool) -> dict[str, Any]:
    return _document("v1", "ServiceAccount", export, automountServiceAccountToken=has_executors)


def _rights(export: Export) -> list[dict[str, Any]]:
    """Return the rights of a driver that starts pods, in its namespace alone."""
    kinds = ["pods", "configmaps", "services", "persistentvolumeclaims"]
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    rules = [{"apiGroups": [""], "resources": kinds, "verbs": verbs}]
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "Role", "name": export.label}
    subjects = [{"kind": "ServiceAccount", "name": export.label}]
    return [
        _document(f"{group}/v1", "Role", export, rules=rules),
        _document(f"{group}/v1", "RoleBinding", export, roleRef=role, subjects=subjects),
    ]


def _claim(export: Export) -> dict[str, Any]:
    room = {"requests": {"storage": "10Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": room}
    return _document("v1", "PersistentVolumeClaim", export, spec=spec)


def _service(export: Export, has_executors: bool) -> dict[str, Any]:
    ports = {"probes": PROBES}
    if has_executors:
        ports |= {"driver": _DRIVER_PORT, "blocks": _BLOCKS_PORT, "acker": _ACKER_PORT}
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # executors call the driver before it is ready
        "selector": _driver_labels(export),
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
    }
    return _document("v1", "Service", export, spec=spec)


def _deployment(export: Export) -> dict[str, Any]:
    template = {
        "metadata": {"labels": _driver_labels(export)},
        "spec": {
            "serviceAccountName": export.label,
            "terminationGracePeriodSeconds": export.stop_secs,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                # Each mount would otherwise let the group write to the state, which is refused.
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(export)],
            "volumes": _volumes(export),
        },
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _driver_labels(export)},
        "template": template,
    }
    return _document("apps/v1", "Deployment", export, spec=spec)


def _container(export: Export) -> dict[str, Any]:
    mounts = [{"name": "settings", "mountPath": "/etc/topo", "readOnly": True}]
    mounts += [{"name": "tmp", "mountPath": "/tmp"}]
    if export.has_volume:
        mounts.append({"name": "state", "mountPath": STATE})
    memory = f"{export.memory_mib}Mi"
    cores = 1 if export.master.startswith("k8s://") else export.workers
    container = {
        "name": "topo",
        "image": export.image,
        "args": export.arguments(CONFIG),
        "workingDir": APP,
        "ports": [{"name": "probes", "containerPort": PROBES}],
        "resources": {
            "requests": {"cpu": str(cores), "memory": memory},
            "limits": {"memory": memory},
        },
        # Spark starts in up to a minute on a busy node; until then nobody is asked if it lives.
        "startupProbe": _probe("/healthz", period=5, failures=60),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=5, failures=1),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    if export.secret:
        container["envFrom"] = [{"secretRef": {"name": export.secret}}]
    return container


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "probes"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _volumes(export: Export) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "settings", "configMap": {"name": export.label}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if export.has_volume:
        volumes.append({"name": "state", "persistentVolumeClaim": {"claimName": export.label}})
    return volumes


def _network(export: Export, has_executors: bool) -> dict[str, Any]:
    """Return who may call it: its executors, and everybody for figures and probes."""
    ingress: list[dict[str, Any]] = [{"ports": [{"port": PROBES}]}]
    if has_executors:
        ingress.append({"from": [{"podSelector": {"matchLabels": _labels(export)}}]})
    spec = {
        "podSelector": {"matchLabels": _labels(export)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return _document("networking.k8s.io/v1", "NetworkPolicy", export, spec=spec)


def _disruption(export: Export) -> dict[str, Any]:
    """Return what lets a node be drained: the only pod may go, since it resumes elsewhere."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _labels(export)}}
    return _document("policy/v1", "PodDisruptionBudget", export, spec=spec)
