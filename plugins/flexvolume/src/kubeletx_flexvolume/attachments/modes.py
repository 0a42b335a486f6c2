"""`VolumeLookup`: the access modes of a volume, and its PersistentVolume.

The modes are from the volume's option, else from the PersistentVolume. A volume without a PersistentVolume,
such as an inline volume, is ReadWriteOnce. If the API server does not answer, the modes are unknown: they are never
guessed, since the guess would decide who may write. PersistentVolumes are cached for a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubeletx.api import Clock, KubeletxError, NotFound, TimedOut, Unavailable

from ..values import AccessMode, StorageVolume

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient
    from kubeletx.kube.types.objects import PersistentVolume

CACHE_SECONDS: Final = 60.0
_MOST: Final = 4096
"""Maximum number of cached PersistentVolumes."""
_MODES: Final = {mode.value: mode for mode in AccessMode}


class VolumeLookup:
    """Reads PersistentVolumes, through a small cache."""

    def __init__(self, client: KubeClient | None, clock: Clock) -> None:
        """`client`: with the storage identity; None: there is no cluster, and no PersistentVolumes."""
        self._client = client
        self._clock = clock
        self._cached: dict[str, tuple[float, PersistentVolume | None]] = {}

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
        words = found.spec.access_modes if found is not None else ()
        # a mode of a newer Kubernetes is left out, since its rule is not known here
        return tuple(_MODES[word] for word in words if word in _MODES) or (AccessMode.READ_WRITE_ONCE,)

    async def find(self, name: str) -> PersistentVolume | None:
        """Return the PersistentVolume; None if there is none. Raises the error of a failed look-up."""
        if self._client is None:
            return None
        now = self._clock.monotonic()
        at, known = self._cached.get(name, (-CACHE_SECONDS, None))
        if now - at < CACHE_SECONDS:
            return known
        found = await read_volume(self._client, name)
        if len(self._cached) >= _MOST:
            self._cached.clear()
        self._cached[name] = now, found
        return found


async def read_volume(client: KubeClient, name: str) -> PersistentVolume | None:
    """Read one PersistentVolume; None if there is none."""
    from kubeletx.kube.client.resources import PERSISTENT_VOLUMES
    from kubeletx.kube.types.objects import PersistentVolume

    try:
        return await client.get(PERSISTENT_VOLUMES.path(name=name), PersistentVolume)
    except NotFound:
        return None
