"""Reading rows that may make no sense: a database that somebody altered costs those rows and not the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from sqlalchemy import Select
from sqlalchemy.engine import Connection, RowMapping

log = structlog.get_logger(__name__)
T = TypeVar("T")


def read_rows(connection: Connection, query: Select[Any], convert: Callable[[RowMapping], T]) -> list[T]:
    """What `convert` makes of each row, in order; rows for which it raises are left out, with one warning."""
    found: list[T] = []
    bad = 0
    for row in connection.execute(query).mappings():
        try:
            found.append(convert(row))
        except (ValueError, TypeError, AttributeError) as error:
            bad += 1
            problem = error
    if bad:
        tables = ", ".join(sorted({column.table.name for column in query.selected_columns}))
        log.warning("Left out rows that make no sense", table=tables, rows=bad, err=str(problem))
    return found
