"""Tables, which kubectl asks for instead of objects so that the server chooses the columns.

Pods and nodes have the columns that people know; everything else has name and age. Source: kubernetes,
pkg/printers/internalversion/printers.go; apiserver, pkg/endpoints/handlers/response.go.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from .errors import Json

_NAME: Final = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}


def wants_table(accept: str) -> bool:
    """Whether a client asks for a table."""
    return "as=Table" in accept


def table_of(value: Json, now: datetime) -> Json:
    """A list or an object as a table."""
    kind = value["kind"]
    items: list[Json] = value["items"] if kind.endswith("List") else [value]
    columns, cells = _KINDS.get(kind.removesuffix("List"), ((), _no_cells))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": value["metadata"] if kind.endswith("List") else {},
        "columnDefinitions": [_NAME, *(_column(name) for name in (*columns, "Age"))],
        "rows": [_row(one, cells(one), now) for one in items],
    }


def _column(name: str) -> Json:
    return {"name": name, "type": "string", "format": "", "description": "", "priority": 0}


def _row(value: Json, cells: list[Any], now: datetime) -> Json:
    metadata = value["metadata"]
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {"cells": [metadata["name"], *cells, _age(metadata, now)], "object": partial}


def _age(metadata: Json, now: datetime) -> str:
    seconds = int((now - datetime.fromisoformat(metadata["creationTimestamp"])).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def _no_cells(value: Json) -> list[Any]:
    return []


def _pod_cells(pod: Json) -> list[Any]:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(bool(one.get("ready")) for one in containers)
    restarts = sum(one.get("restartCount", 0) for one in containers)
    return [f"{ready}/{len(pod['spec']['containers'])}", _pod_state(pod, status), str(restarts)]


def _pod_state(pod: Json, status: Json) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            if reason := (state.get(kind) or {}).get("reason"):
                return str(reason)
    return str(status.get("reason") or status.get("phase") or "")


def _node_cells(node: Json) -> list[Any]:
    status = node.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or []}
    ready = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if (node.get("spec") or {}).get("unschedulable"):
        ready += ",SchedulingDisabled"
    return [ready, "<none>", (status.get("nodeInfo") or {}).get("kubeletVersion", "")]


_KINDS: Final[dict[str, tuple[tuple[str, ...], Callable[[Json], list[Any]]]]] = {
    "Pod": (("Ready", "Status", "Restarts"), _pod_cells),
    "Node": (("Status", "Roles", "Version"), _node_cells),
}
