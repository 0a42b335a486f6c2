"""Metadata of API objects: names, labels, owners. Source: meta/v1 ObjectMeta.

All API types of this package are frozen msgspec Structs with snake_case attributes; `json_name` gives the
field names of the JSON form (``pod_ips`` is ``podIPs``). Unknown fields are ignored, since newer clusters
send more. Values equal to their default are not written, so that encoded objects look like hand-written ones.
The garbage collector does not track these values (`gc=False`), since frozen values cannot form cycles.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import field

from ..text.numbers import whole_number

_SPELLED: Final = {
    "api": "API",
    "cidr": "CIDR",
    "cidrs": "CIDRs",
    "fqdn": "FQDN",
    "id": "ID",
    "io": "IO",
    "ip": "IP",
    "ipc": "IPC",
    "ips": "IPs",
    "pid": "PID",
    "uri": "URI",
    "uuid": "UUID",
    "wwns": "WWNs",
}


def json_name(attribute: str) -> str:
    """Return the JSON field name of a snake_case attribute: ``host_pid`` is ``hostPID``."""
    head, *tail = attribute.split("_")
    return head + "".join(_SPELLED.get(word) or word.capitalize() for word in tail)


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=json_name, gc=False):
    """Base of every API type. Subclasses repeat ``frozen=True, kw_only=True``.

    Descriptions of fields that many types have, for ``kubeletx explain``: `name`: name of the object that is referred
    to. `key`: key in its data. `optional`: it may be missing. `items`: the files; for a config map or secret None
    means all keys. `default_mode`: permission bits of files without a mode of their own; None: 0644. `fs_type`: file
    system of the volume, such as ext4. `read_only`: mount it read-only. `secret_ref`: secret of the pod's namespace
    with what the driver needs to log in. `path`: path of the file in the volume.
    """


def constant(value: str) -> str:
    """Declare a field with a fixed value that is always written (apiVersion, kind)."""
    made: str = field(default_factory=lambda: value)
    return made


def cut_to_seconds(value: ApiStruct, *attributes: str) -> None:
    """Convert these times of a new Struct to UTC and whole seconds, as metav1.Time. For ``__post_init__`` only.

    Raises ValueError for a time without a zone.
    """
    for attribute in attributes:
        moment: datetime | None = getattr(value, attribute)
        if moment is None:
            continue
        if moment.tzinfo is None:
            raise ValueError(f"{json_name(attribute)} has no time zone")
        if moment.microsecond or moment.tzinfo is not UTC:
            try:
                whole = moment.astimezone(UTC).replace(microsecond=0)
            except OverflowError as error:  # out of range once it is converted to UTC
                raise ValueError(f"{json_name(attribute)} {moment} is out of range in UTC") from error
            msgspec.structs.force_setattr(value, attribute, whole)


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """An object that owns this one."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """Metadata of an object: name, UID, version, labels and more. Texts that are not set are ``""``.

    managedFields is not decoded: it is large, and the agent does not use it.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        cut_to_seconds(self, "creation_timestamp", "deletion_timestamp")


def is_older(one: ObjectMeta, other: ObjectMeta) -> bool:
    """Return True if `one` is an older version of an object than `other`. Resource versions grow with time (KEP-5504).

    Returns False if a version is not a number.
    """
    first, second = whole_number(one.resource_version), whole_number(other.resource_version)
    return first is not None and second is not None and first < second


class ListMeta(ApiStruct, frozen=True, kw_only=True):
    """Metadata of a list: its resource version, and the token of its next page (`continue_`; empty: no more pages)."""

    resource_version: str = ""
    continue_: str = field(default="", name="continue")
    remaining_item_count: int | None = None


class LabelSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """One condition on a label; `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    """Query over labels; an object matches if all conditions hold."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class LocalObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to an object of the same namespace, by name."""

    name: str = ""


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to any object. `field_path`: a part of it, such as ``spec.containers{web}``."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    field_path: str | None = None
