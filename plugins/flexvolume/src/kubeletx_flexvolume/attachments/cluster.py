"""Facts from a cluster's API server about nodes and pods, and reports about attachments as core/v1 Events.

They are read with the storage identity: a node's own identity may read only its own Node, and its own pods. Objects are
decoded only as far as the facts need them, since a Node object has kilobytes of image names.

The event of a volume, which ``kubectl describe`` shows, is about its claim; without a claim about its PersistentVolume,
and without that about its attachment record. A report that cannot be written is logged, never raised: the step that it is
about has happened.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

import structlog

from kubeletx.api import Clock, KubeletxError, NotFound, within
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import EVENTS, NODES, PODS
from kubeletx.kube.types.event import Event, EventSource
from kubeletx.kube.types.meta import ApiStruct, ListMeta, ObjectMeta, ObjectReference

from ..values import Holder
from .definitions import ATTACHMENT_KIND, GROUP, VERSION
from .events import COMPONENT
from .modes import VolumeLookup
from .proofs import OUT_OF_SERVICE, StorageNode

log = structlog.get_logger(__name__)

STATEFUL_SET: Final = "StatefulSet"
_SECONDS: Final = 10.0
_LONGEST_MESSAGE: Final = 1024
"""Maximum length of an event's message in characters. Source: kubernetes, pkg/apis/core/validation/events.go."""
_LONGEST_NAME: Final = 220
_NAMESPACE: Final = "default"
"""Namespace of events about objects that have none."""


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


class ClusterEvents:
    """Reports as Event objects of a cluster. Implements `AttachmentEvents`. `node`: reporter."""

    def __init__(self, client: KubeClient, volumes: VolumeLookup, clock: Clock, *, node: str) -> None:
        """`client`: its identity may create events."""
        self._client = client
        self._volumes = volumes
        self._clock = clock
        self._node = node

    async def of_volume(self, name: str, *, reason: str, message: str) -> None:
        try:
            subject = await self._subject(name)
        except KubeletxError as error:
            log.warning(
                "Failed to look up the object of an event", volume=name, reason=reason, err=str(error)
            )
            subject = _record(name)
        await self.of_object(subject, reason=reason, message=message)

    async def of_object(self, subject: ObjectReference, *, reason: str, message: str) -> None:
        what = f"{subject.kind} {subject.name}"
        log.warning("Reported an event", object=what, reason=reason, message=message)
        event = self._event(subject, reason, message[:_LONGEST_MESSAGE])
        try:
            async with within(_SECONDS, f"the event about {what} was not written"):
                await self._client.create(EVENTS.path(event.metadata.namespace), event, Event)
        except KubeletxError as error:
            log.warning("Failed to write an event", object=what, reason=reason, err=str(error))

    async def _subject(self, name: str) -> ObjectReference:
        found = await self._volumes.find(name)
        if found is None:
            return _record(name)
        claim = found.spec.claim_ref
        if claim is None or not claim.name:
            return ObjectReference(
                api_version="v1", kind="PersistentVolume", name=name, uid=found.metadata.uid
            )
        return ObjectReference(
            api_version="v1",
            kind="PersistentVolumeClaim",
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
        )

    def _event(self, subject: ObjectReference, reason: str, message: str) -> Event:
        now = self._clock.now()
        name = f"{(subject.name or '')[:_LONGEST_NAME]}.{secrets.token_hex(8)}"
        return Event(
            metadata=ObjectMeta(name=name, namespace=subject.namespace or _NAMESPACE),
            involved_object=subject,
            reason=reason,
            message=message,
            type="Warning",
            count=1,
            first_timestamp=now,
            last_timestamp=now,
            source=EventSource(component=COMPONENT, host=self._node),
            reporting_component=COMPONENT,
            reporting_instance=self._node,
        )


def _facts(node: _Node) -> StorageNode:
    conditions = {condition.type: condition.status for condition in node.status.conditions}
    return StorageNode(
        name=node.metadata.name,
        uid=node.metadata.uid,
        boot_id=node.status.node_info.boot_id,
        out_of_service=any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints),
        ready=conditions.get("Ready") == "True",
    )


def _record(name: str) -> ObjectReference:
    return ObjectReference(api_version=f"{GROUP}/{VERSION}", kind=ATTACHMENT_KIND, name=name)
