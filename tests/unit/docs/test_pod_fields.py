"""The page of pod fields names every field that our types read, once, with a state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from msgspec import inspect

from kubeletx.kube.types.core import ApiStruct, PodSpec
from tests.unit.docs.pages import DOCS, rows, words

PAGE = (DOCS / "pod-fields.md").read_text()
TABLE = [row for row in rows(PAGE) if len(row) == 4]
STATES = {"done", "partly", "waits", "refused", "elsewhere", "no meaning"}


def reachable(root: type) -> set[type]:
    """Every Struct below `root`, with the Structs that they are made of."""
    found: set[type] = set()
    waiting: list[Any] = [inspect.type_info(root)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, inspect.StructType):
            if one.cls in found:
                continue
            found |= {one.cls, *bases_of(one.cls)}
            waiting += [field.type for field in one.fields]
        parts = (getattr(one, name, None) for name in ("item_type", "key_type", "value_type"))
        waiting += [part for part in parts if part is not None]
        waiting += [*getattr(one, "types", ()), *getattr(one, "item_types", ())]
    return found


def bases_of(kind: type) -> list[type[msgspec.Struct]]:
    """The Structs with fields that the type is made of."""
    bases = (base for base in kind.__mro__[1:] if issubclass(base, ApiStruct))
    return [base for base in bases if base.__struct_fields__]


def own_fields(kind: type) -> list[str]:
    """JSON names of the fields that the type itself declares."""
    inherited = {name for base in bases_of(kind) for name in base.__struct_fields__}
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.name not in inherited]


def test_every_field_of_a_pod_stands_in_the_table_once() -> None:
    named = Counter((kind, field) for row in TABLE for kind in words(row[0]) for field in words(row[1]))
    read = {(kind.__name__, field) for kind in reachable(PodSpec) for field in own_fields(kind)}
    assert set(named) == read
    assert {one for one, count in named.items() if count > 1} == set()
    assert len(read) > 300


def test_every_row_has_a_state_and_what_is_not_done_says_what_happens() -> None:
    for row in TABLE:
        assert row[2] in STATES, row
        assert row[3] or row[2] in ("done", "elsewhere", "no meaning"), row
