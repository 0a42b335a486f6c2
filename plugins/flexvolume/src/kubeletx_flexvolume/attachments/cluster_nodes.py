"""Facts about nodes and pods from a cluster's API server.

They are read with the storage identity: a node's own identity may read only its own Node, and its own pods. Objects are
decoded only as far as the facts need them, since a Node object has kilobytes of image names.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletx.api import NotFound
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import NODES, PODS
from kubeletx.kube.types.meta import ApiStruct, ListMeta, ObjectMeta

from ..values import Holder
from .proofs import OUT_OF_SERVICE, StorageNode

STATEFUL_SET = "StatefulSet"


class _Taint(ApiStruct, frozen=True, kw_only=True):
    key: str = ""


class _Spec(ApiStruct, frozen=True, kw_only=True):
    taints: tuple[_Taint, ...] = ()


class _Condition(ApiStruct, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""


class _NodeInfo(ApiStruct, frozen=True, kw_only=True):
    boot_id: str = ""


class _Status(ApiStruct, frozen=True, kw_only=True):
    conditions: tuple[_Condition, ...] = ()
    node_info: _NodeInfo = _NodeInfo()


class _Node(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _NodeList(ApiStruct, frozen=True, kw_only=True):
    metadata: ListMeta = ListMeta()
    items: tuple[_Node, ...] = ()


class _Pod(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class ClusterNodes:
    """Facts from the Node objects of a cluster. Implements `nodes.NodeDirectory`."""

    def __init__(self, client: KubeClient) -> None:
        """`client`: its identity may get and list nodes."""
        self._client = client

    async def facts(self, name: str) -> StorageNode:
        try:
            return _facts(await self._client.get(NODES.path(name=name), _Node))
        except NotFound:
            return StorageNode(name=name, exists=False)

    async def all(self) -> Mapping[str, StorageNode]:
        found: dict[str, StorageNode] = {}
        async for page in list_pages(self._client, NODES.path(), _NodeList):
            found |= {item.metadata.name: _facts(item) for item in page.items}
        return found


class ClusterPods:
    """Facts about the pods of holders. Methods raise the error of a failed look-up."""

    def __init__(self, client: KubeClient) -> None:
        """`client`: its identity may get pods."""
        self._client = client

    async def is_given_up(self, holder: Holder) -> bool:
        """Return True if the cluster has given up the holder's pod: it is gone, made again, or being deleted."""
        found = await self._find(holder)
        return found is None or found.deletion_timestamp is not None

    async def is_stateful(self, holder: Holder) -> bool:
        found = await self._find(holder)
        owners = found.owner_references if found is not None else ()
        return any(
            owner.kind == STATEFUL_SET and owner.controller and owner.api_version.startswith("apps/")
            for owner in owners
        )

    async def _find(self, holder: Holder) -> ObjectMeta | None:
        """Return the metadata of the pod; None if it is gone, or another pod has its name now."""
        try:
            found = await self._client.get(PODS.path(holder.pod_namespace, holder.pod), _Pod)
        except NotFound:
            return None
        return found.metadata if found.metadata.uid == holder.pod_uid else None


def _facts(node: _Node) -> StorageNode:
    conditions = {condition.type: condition.status for condition in node.status.conditions}
    return StorageNode(
        name=node.metadata.name,
        uid=node.metadata.uid,
        boot_id=node.status.node_info.boot_id,
        out_of_service=any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints),
        ready=conditions.get("Ready") == "True",
    )
