"""Decides which of a pod's volumes a volume driver prepares, and builds what the driver gets. Without I/O.

A claim is resolved to its persistent volume before. Whatever cannot be resolved is left to `kinds`, whose set-up
functions have the errors for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import ClusterObjects, ClusterVolume, KubeletxError, PodUid, Unavailable
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod, Volume
from kubeletx.kube.types.meta import json_name

from ..cluster_objects import ObjectSet
from ..kinds.table import KINDS, kind_of, mount_text
from ..operations import plugin_name
from ..prepared import PreparedVolume, VolumeError
from ..references import claim_of
from .journal import JournalEntry
from .requests import DriverVolume, SecretRef, claimed_request, inline_request
from .table import VolumeDrivers
from .volumes import WantedVolume

CLAIMS: Final = ("persistent_volume_claim", "ephemeral")
_FILES: Final = KINDS.keys() - set(CLAIMS)
"""Kinds that never have a driver; most volumes of most pods."""
OWN_VOLUMES: Final = ("local", "hostPath", "")
"""Kinds of persistent volumes that `kinds.persistent` prepares or refuses."""


class PodVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes of one pod. `own`: indexes of the volumes that `kinds` prepares. `driven`: volumes of volume drivers."""

    own: tuple[int, ...]
    driven: tuple[DriverVolume, ...] = ()


def resolve_volumes(
    pod: Pod, objects: ObjectSet | None, drivers: VolumeDrivers, root_dir: Path
) -> PodVolumes:
    """Return which volumes of the pod are prepared by drivers. Raises VolumeError for an invalid source."""
    own, driven = [], []
    for index, volume in enumerate(pod.spec.volumes):
        kind = kind_of(volume)
        if kind in _FILES:
            own.append(index)
            continue
        field = f"spec.volumes[{index}]"
        try:
            resolved = _driver_volume(pod, volume, kind, objects, drivers, root_dir, field)
        except KubeletxError as error:
            error.message = mount_text(field, volume.name, str(error))
            raise
        if resolved is None:
            own.append(index)
        else:
            driven.append(resolved)
    return PodVolumes(own=tuple(own), driven=tuple(driven))


def wanted_volumes(volumes: Iterable[DriverVolume], cluster: ClusterObjects | None) -> list[WantedVolume]:
    """Return the volumes with the functions that read their secrets.

    `cluster` None: the pod's source has no cluster.
    """
    return [
        WantedVolume(volume, partial(_read_secret, volume.request.pod.uid, volume.secret, cluster))
        for volume in volumes
    ]


def ready_volume(entry: JournalEntry) -> PreparedVolume:
    """Return a volume that its driver has prepared as the rest of the agent uses it."""
    ready, request = entry.ready, entry.request
    assert ready is not None
    return PreparedVolume(
        name=request.name,
        kind=ready.kind,
        source=entry.path,
        read_only=request.read_only or ready.read_only,
        managed=ready.capabilities.selinux_relabel,
        plugin=plugin_name(request.source, request.driver),
        has_stats=ready.capabilities.stats,
    )


def _driver_volume(
    pod: Pod,
    volume: Volume,
    kind: str,
    objects: ObjectSet | None,
    drivers: VolumeDrivers,
    root_dir: Path,
    field: str,
) -> DriverVolume | None:
    if kind in CLAIMS:
        bound = objects.claims.get(claim_of(pod, volume)) if objects is not None else None
        if not isinstance(bound, ClusterVolume) or not bound.is_here or bound.kind in OWN_VOLUMES:
            return None
        wanted = claimed_request(pod, volume, bound, root_dir, f"{field}.{json_name(kind)}")
    elif not drivers.may_serve(json_name(kind)):
        return None
    else:
        wanted = inline_request(pod, volume, kind, root_dir, field)
    request = wanted.request
    return wanted if drivers.find(request.source, request.driver) is not None else None


async def _read_secret(
    uid: PodUid, ref: SecretRef | None, cluster: ClusterObjects | None
) -> dict[str, bytes]:
    if ref is None:
        return {}
    if cluster is None:
        raise VolumeError(
            field=ref.field,
            problem=f'secret "{ref.name}" cannot be read: this pod\'s source gives no cluster objects',
            fix="leave it out, or create the pod in the cluster",
        )
    secret = await cluster.find_volume_secret(uid, ref.namespace, ref.name)
    if secret is None:
        raise Unavailable(
            f'{ref.field}: secret "{ref.namespace}/{ref.name}" not found; create it',
            reason=Event.FAILED_MOUNT,
        )
    if ref.type and secret.type != ref.type:
        raise Unavailable(
            f'{ref.field}: secret "{ref.namespace}/{ref.name}" has type {secret.type!r}, not {ref.type!r}; '
            "create it again with that type",
            reason=Event.FAILED_MOUNT,
        )
    return secret.as_bytes()
