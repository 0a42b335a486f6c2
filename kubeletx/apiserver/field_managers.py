"""Finds in an object's managedFields which client wrote a field last, for the log.

`ObjectMeta` does not decode managedFields, because they are large: the object is read again when its writer is logged.

Source: meta/v1 ManagedFieldsEntry, FieldsV1; apiserver, pkg/endpoints/handlers (a manager without a name is named by
its User-Agent up to the slash).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import structlog

from kubeletx.api import KubeletxError
from kubeletx.kube.client import KubeClient
from kubeletx.kube.types.meta import ApiStruct

log = structlog.get_logger(__name__)

OUR_MANAGER = "kubeletx"
UNKNOWN = "unknown"
_MAPS = frozenset({"labels", "annotations"})
_MOST_FIELDS = 8

Path = tuple[str, ...]


class ManagedFieldsEntry(ApiStruct, frozen=True, kw_only=True):
    """Entry of managedFields: the fields that one manager (API client) wrote last.

    `fields`: nested maps with the keys ``f:<field>`` and ``k:<key of a list item>``.
    """

    manager: str = ""
    time: str = ""
    subresource: str = ""
    fields: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")


class _Meta(ApiStruct, frozen=True, kw_only=True):
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class _Managed(ApiStruct, frozen=True, kw_only=True):
    metadata: _Meta = _Meta()


async def tell_foreign_write(
    client: KubeClient, path: str, what: str, patch: Mapping[str, Any], *, next_wait: float
) -> None:
    """Log which client wrote the fields that `patch` will correct. Call it before the patch is sent.

    `path`: API path of the object. `what`: name of the object in the log. `next_wait`: seconds for which the next
    correction would be delayed, for the log.
    """
    paths = list(paths_of(patch))
    try:
        entries = (await client.get(path, _Managed)).metadata.managed_fields
    except KubeletxError:
        entries = ()
    shown = [_shown(field_path) for field_path in paths[:_MOST_FIELDS]]
    log.warning(
        "Corrected a foreign write to what this node reports",
        object=what,
        fields=", ".join(shown) + (" ..." if len(paths) > _MOST_FIELDS else ""),
        manager=last_writer(entries, paths),
        next_answer_seconds=next_wait,
    )


def last_writer(entries: Iterable[ManagedFieldsEntry], paths: Iterable[Path]) -> str:
    """Return the name of the manager that wrote one of the fields `paths` last.

    A removed field has no manager: then it is the last other manager of the object. ``unknown`` without any entry.
    """
    paths = list(paths)
    known = list(entries)
    owners = [manager for manager in known if any(_owns(manager.fields, path) for path in paths)]
    if not owners:
        owners = [manager for manager in known if manager.manager != OUR_MANAGER] or known
    last = max(owners, key=lambda manager: (manager.time, manager.manager != OUR_MANAGER), default=None)
    if last is None:
        return UNKNOWN
    return f"{last.manager} (another agent of this name)" if last.manager == OUR_MANAGER else last.manager


def paths_of(patch: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the path of each field that the patch changes, in the form of managedFields.

    An example is (``f:status``, ``f:conditions``, ``k:{"type":"Ready"}``).
    """
    for part, fields in patch.items():
        for field, value in fields.items():
            if field.startswith("$") or field in ("uid", "resourceVersion"):
                continue
            base = (f"f:{part}", f"f:{field}")
            if field in _MAPS and isinstance(value, Mapping):
                yield from ((*base, f"f:{key}") for key in value)
            elif field == "conditions":
                yield from ((*base, f'k:{{"type":"{condition["type"]}"}}') for condition in value)
            else:
                yield base


def _owns(fields: Mapping[str, Any], path: Path) -> bool:
    owned: Any = fields
    for part in path:
        if not isinstance(owned, Mapping) or part not in owned:
            return False
        owned = owned[part]
    return True


def _shown(path: Path) -> str:
    """Format a path for users: ``status.conditions[Ready]``, ``metadata.labels[zone]``."""
    head = ".".join(part.removeprefix("f:") for part in path[:2])
    if len(path) == 2:
        return head
    last = path[2].removeprefix("f:").removeprefix('k:{"type":"').removesuffix('"}')
    return f"{head}[{last}]"
