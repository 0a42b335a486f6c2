"""Converts objects to Table objects, which kubectl requests so that the server chooses the columns.

Custom resources have the columns of their definition. All other resources have name and age.
Source: apiserver, pkg/endpoints/handlers/response.go.
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
        "columnDefinitions": [_NAME, *(column.definition for column in columns)],
        "rows": [_row(item, columns, now) for item in items],
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
        return [_custom_column(column) for column in of.custom["additionalPrinterColumns"]]
    return [_AGE]


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
    return {"cells": [metadata["name"], *(column.cell(value, now) for column in columns)], "object": partial}


def _since(moment: str, now: datetime) -> str:
    seconds = int((now - datetime.fromisoformat(moment)).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


_AGE: Final = _Column(_column("Age"), lambda value, now: _since(value["metadata"]["creationTimestamp"], now))
