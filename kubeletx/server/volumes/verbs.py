"""`VolumeVerbs`: queries of the admin socket about volumes of pods; a part of `AdminBackend`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from ..views import View


class VolumeView(View, frozen=True, kw_only=True):
    """One volume of one pod on this node.

    `kind`: the kubelet's name of its plugin, such as ``kubernetes.io/empty-dir``, or the name of a FlexVolume driver.
    `driver`: name of the volume driver; empty for a volume that the agent prepares itself. `state`: preparing, ready or
    releasing. `message`: error of the last call of the driver. `since`: time of the last change of the state; None if
    unknown. Sizes in bytes; None: not measured.
    """

    namespace: str
    pod: str
    name: str
    kind: str
    state: str
    pod_uid: str = ""
    driver: str = ""
    persistent_volume: str = ""
    claim: str = ""
    path: str = ""
    device: str = ""
    fs_type: str = ""
    read_only: bool = False
    access_modes: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    message: str = ""
    since: datetime | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None


class VolumeVerbs(Protocol):
    """Queries about the volumes of all pods on this node."""

    async def list_volumes(self) -> Sequence[VolumeView]:
        """Return every volume that is prepared, being prepared or being released, in order of pod and name."""
        ...

    def watch_volumes(self) -> AsyncIterator[Sequence[VolumeView]]:
        """Yield the list of all volumes now, and the whole list again after each change."""
        ...
