"""What claims are bound to. A node may read only the claims of its pods and their volumes, one by one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from kubeletx.api import ClusterVolume, KubeletxError, NotFound, PermissionDenied, Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeletx.kube.objects import PersistentVolume, PersistentVolumeClaim
from kubeletx.pods.admission.placement import selects

KNOWN = 1024
BOUND = "Bound"


class _NotUsable(Unavailable):
    """The API server did answer."""


class ClaimedVolumes:
    """Looks claims up; what was bound once is remembered for as long as nobody answers."""

    def __init__(self, client: KubeClient, node_name: str, labels: Callable[[], Mapping[str, str]]) -> None:
        """`labels`: of the node, as the API server has them."""
        self._client = client
        self._node_name = node_name
        self._labels = labels
        self._known: OrderedDict[tuple[str, str], ClusterVolume] = OrderedDict()

    async def find(self, namespace: str, claim: str) -> ClusterVolume | None:
        """See `ClusterObjects.find_volume`."""
        key = (namespace, claim)
        try:
            found = await self._look(namespace, claim)
        except NotFound:
            self._known.pop(key, None)
            return None
        except PermissionDenied as error:  # the authorizer hears of a new pod a moment later than we do
            raise Unavailable(str(error)) from error
        except _NotUsable as error:
            self._known.pop(key, None)
            raise Unavailable(str(error)) from error
        except KubeletxError:
            if key in self._known:
                return self._known[key]
            raise
        self._known[key] = found
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return found

    async def _look(self, namespace: str, name: str) -> ClusterVolume:
        claim = await self._client.get(PERSISTENT_VOLUME_CLAIMS.path(namespace, name), PersistentVolumeClaim)
        what = f"persistentvolumeclaim {namespace}/{name}"
        if claim.status.phase != BOUND or not claim.spec.volume_name:
            raise _NotUsable(f"{what} is not bound ({claim.status.phase or 'no phase'})")
        try:
            volume = await self._client.get(
                PERSISTENT_VOLUMES.path("", claim.spec.volume_name), PersistentVolume
            )
        except NotFound as error:
            raise _NotUsable(f"{what}: {error}") from error
        owner = volume.spec.claim_ref
        if owner is None or owner.uid != claim.metadata.uid:
            raise _NotUsable(f"{what}: volume {volume.metadata.name} is bound to another claim")
        return self._translated(volume)

    def _translated(self, volume: PersistentVolume) -> ClusterVolume:
        spec, name = volume.spec, volume.metadata.name
        affinity = spec.node_affinity.required if spec.node_affinity is not None else None
        kind, path, server, read_only, check = "unknown", "", "", False, ""
        if spec.local is not None:
            kind, path = "local", spec.local.path
        elif spec.host_path is not None:
            kind, path, check = "hostPath", spec.host_path.path, spec.host_path.type or ""
        elif spec.nfs is not None:
            kind, path, server = "nfs", spec.nfs.path, spec.nfs.server
            read_only = spec.nfs.read_only
        elif spec.csi is not None:
            kind = f"csi, driver {spec.csi.get('driver', '')}"
        return ClusterVolume(
            name=name,
            kind=kind,
            path=path,
            server=server,
            read_only=read_only,
            is_block=spec.volume_mode == "Block",
            check=check,
            mount_options=spec.mount_options,
            is_here=affinity is None or selects(affinity, self._node_name, self._labels()),
        )
