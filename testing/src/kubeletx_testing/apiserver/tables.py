"""Converts objects to Table objects, which kubectl requests so that the server chooses the columns.

Pods, nodes, jobs and disruption budgets have the usual columns. Custom resources have the columns of their
definition. All other resources have name and age. Source: kubernetes,
pkg/printers/internalversion/printers.go; apiserver, pkg/endpoints/handlers/response.go.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from .errors import Json
from .resources import Resource

_NAME: Final = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}


def wants_table(accept: str) -> bool:
    """Return True if the Accept header asks for a Table object."""
    return "as=Table" in accept


def table_of(of: Resource, value: Json, now: datetime) -> Json:
    """Convert a list or a single object to a Table object."""
    is_list = "items" in value
    items: list[Json] = value["items"] if is_list else [value]
    columns = _columns_of(of)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": value["metadata"] if is_list else {},
        "columnDefinitions": [_NAME, *(one.definition for one in columns)],
        "rows": [_row(one, columns, now) for one in items],
    }


class _Column(msgspec.Struct, frozen=True):
    """One column of a table.

    `definition`: entry in columnDefinitions. `cell`: function that returns the text or number to show for an
    object; its second argument is the current time, for ages.
    """

    definition: Json
    cell: Callable[[Json, datetime], Any]


def _columns_of(of: Resource) -> list[_Column]:
    if of.custom is not None and of.custom.get("additionalPrinterColumns"):
        return [_custom_column(one) for one in of.custom["additionalPrinterColumns"]]
    names, cells = _KINDS.get(of.full_name, ((), _no_cells))
    return [*(_plain_column(name, index, cells) for index, name in enumerate(names)), _AGE]


def _plain_column(name: str, index: int, cells: Callable[[Json], list[Any]]) -> _Column:
    return _Column(_column(name), lambda value, _now: cells(value)[index])


def _custom_column(spec: Json) -> _Column:
    """Return a column that a CustomResourceDefinition declares; its JSON path must lead to a plain value.

    Source: apiextensions-apiserver, pkg/registry/customresource/tableconvertor.
    """
    path = [part for part in spec["jsonPath"].split(".") if part]
    definition = {
        **_column(spec["name"]),
        "type": spec["type"],
        "format": spec.get("format", ""),
        "description": spec.get("description", ""),
        "priority": spec.get("priority", 0),
    }

    def cell(value: Json, now: datetime) -> Any:
        found: Any = value
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            return None
        return _since(str(found), now) if spec["type"] == "date" else found

    return _Column(definition, cell)


def _column(name: str) -> Json:
    return {"name": name, "type": "string", "format": "", "description": "", "priority": 0}


def _row(value: Json, columns: list[_Column], now: datetime) -> Json:
    metadata = value["metadata"]
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {"cells": [metadata["name"], *(one.cell(value, now) for one in columns)], "object": partial}


def _since(moment: str, now: datetime) -> str:
    seconds = int((now - datetime.fromisoformat(moment)).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def _no_cells(_value: Json) -> list[Any]:
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


def _job_cells(job: Json) -> list[Any]:
    status, wanted = job.get("status") or {}, job["spec"].get("completions")
    held = {one["type"] for one in status.get("conditions") or [] if one["status"] == "True"}
    state = next((one for one in ("Complete", "Failed", "Suspended") if one in held), "Running")
    return [state, f"{status.get('succeeded', 0)}/{wanted if wanted is not None else '1'}"]


def _budget_cells(budget: Json) -> list[Any]:
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    bounds = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [*bounds, status.get("disruptionsAllowed", 0)]


_AGE: Final = _Column(_column("Age"), lambda value, now: _since(value["metadata"]["creationTimestamp"], now))
_KINDS: Final[dict[str, tuple[tuple[str, ...], Callable[[Json], list[Any]]]]] = {
    "pods": (("Ready", "Status", "Restarts"), _pod_cells),
    "jobs.batch": (("Status", "Completions"), _job_cells),
    "poddisruptionbudgets.policy": (
        ("Min Available", "Max Unavailable", "Allowed Disruptions"),
        _budget_cells,
    ),
    "nodes": (("Status", "Roles", "Version"), _node_cells),
}
