"""`VolumeLookup`: access modes and claim of a volume, from its PersistentVolume.

The modes are from the volume's option, else from the PersistentVolume. A volume without a PersistentVolume,
such as an inline volume, is ReadWriteOnce. If the API server does not answer, the modes are unknown: they are never
guessed, since the guess would decide who may write. PersistentVolumes are cached for a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kubeletx.api import Clock, KubeletxError, NotFound, TimedOut, Unavailable

from ..values import DRIVER, AccessMode, StorageVolume

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

CACHE_SECONDS: Final = 60.0
_MOST: Final = 4096
"""Maximum number of cached PersistentVolumes."""
_MODES: Final = {mode.value: mode for mode in AccessMode}


class ClaimRef(Struct, frozen=True, kw_only=True):
    """Claim that a PersistentVolume is bound to. `name` empty: none."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeObject(Struct, frozen=True, kw_only=True):
    """PersistentVolume as far as attachments need it. `uid` empty: there is none. `is_ours`: of the agent's driver."""

    uid: str = ""
    modes: tuple[AccessMode, ...] = ()
    claim: ClaimRef = ClaimRef()
    is_ours: bool = False


NO_OBJECT: Final = VolumeObject()


class VolumeLookup:
    """Reads PersistentVolumes, through a small cache."""

    def __init__(self, client: KubeClient | None, clock: Clock) -> None:
        """`client`: with the storage identity; None: there is no cluster, and no PersistentVolumes."""
        self._client = client
        self._clock = clock
        self._cached: dict[str, tuple[float, VolumeObject]] = {}

    async def modes(self, volume: StorageVolume) -> tuple[AccessMode, ...]:
        """Return the access modes of a volume, at least one. Raises Unavailable or TimedOut if they are unknown."""
        if volume.access_modes:
            return volume.access_modes
        try:
            found = await self.find(volume.name)
        except KubeletxError as error:
            kind = TimedOut if isinstance(error, TimedOut) else Unavailable
            raise kind(
                f"the access modes of volume {volume.name} are not known: {error}; option accessModes of the volume "
                "would make the look-up unnecessary"
            ) from error
        return found.modes or (AccessMode.READ_WRITE_ONCE,)

    async def find(self, name: str) -> VolumeObject:
        """Return the PersistentVolume; `NO_OBJECT` if there is none. Raises the error of a failed look-up."""
        if self._client is None:
            return NO_OBJECT
        now = self._clock.monotonic()
        at, known = self._cached.get(name, (0.0, None))
        if known is not None and now - at < CACHE_SECONDS:
            return known
        found = await read_volume(self._client, name)
        if len(self._cached) >= _MOST:
            self._cached.clear()
        self._cached[name] = now, found
        return found


async def read_volume(client: KubeClient, name: str) -> VolumeObject:
    """Read one PersistentVolume; `NO_OBJECT` if there is none."""
    from kubeletx.kube.client.resources import PERSISTENT_VOLUMES
    from kubeletx.kube.types.objects import PersistentVolume

    try:
        found = await client.get(PERSISTENT_VOLUMES.path(name=name), PersistentVolume)
    except NotFound:
        return NO_OBJECT
    bound = found.spec.claim_ref
    claim = (
        ClaimRef(namespace=bound.namespace, name=bound.name, uid=bound.uid)
        if bound is not None
        else ClaimRef()
    )
    driver = (found.spec.flex_volume or {}).get("driver")
    return VolumeObject(
        uid=found.metadata.uid,
        modes=_known(found.spec.access_modes),
        claim=claim,
        is_ours=driver == DRIVER,
    )


def _known(words: Sequence[str]) -> tuple[AccessMode, ...]:
    """Return the modes with these names. A mode of a newer Kubernetes is left out, since its rule is not known here."""
    return tuple(_MODES[word] for word in words if word in _MODES)
