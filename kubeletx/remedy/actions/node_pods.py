"""Built-in methods ``storage-fence``, by the attachment records of the storage plugin, and ``end-pods``, by the node's own agent."""

from __future__ import annotations

import contextlib
from typing import Final

from kubeletx.api import Clock, Conflict, NotFound
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import PODS, Resource
from kubeletx.kube.types.core import Pod, PodList
from kubeletx.kube.types.meta import ApiStruct, ListMeta, ObjectMeta

from ..model import FenceProof, MethodResult, RemedyOutcome, RemedySettings, RemedyTask
from ..release import kept

ATTACHMENTS: Final = Resource("storage.kubeletx.io", "v1alpha1", "volumeattachments", namespaced=False)
_EXCLUSIVE: Final = frozenset(("ReadWriteOnce", "ReadWriteOncePod"))
_LOOK_SECONDS: Final = 1.0


class _Entry(ApiStruct, frozen=True, kw_only=True):
    node: str = ""
    volume_name: str = ""
    modes: tuple[str, ...] = ()
    read_only: bool = False


class _AttachmentSpec(ApiStruct, frozen=True, kw_only=True):
    attachments: tuple[_Entry, ...] = ()


class _Attachment(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _AttachmentSpec = _AttachmentSpec()


class _AttachmentList(ApiStruct, frozen=True, kw_only=True):
    metadata: ListMeta = ListMeta()
    items: tuple[_Attachment, ...] = ()


async def fence_storage(client: KubeClient, task: RemedyTask) -> RemedyOutcome:
    """Prove the fence of volumes that the node holds alone.

    Their records keep every other node out until the storage plugin has cut this one off, or it is gone: no second writer is
    possible. A volume that several nodes may write to has no such lock, and its pods stay.
    """
    locked: set[str] = set()
    shared: set[str] = set()
    try:
        async for page in list_pages(client, ATTACHMENTS.path(), _AttachmentList):
            for record in page.items:
                for entry in record.spec.attachments:
                    if entry.node == task.node.name:
                        is_locked = entry.read_only or set(entry.modes) <= _EXCLUSIVE
                        (locked if is_locked else shared).add(entry.volume_name or record.metadata.name)
    except NotFound:
        return _failed("the cluster has no attachment records of the storage plugin; configure a fence agent")
    locked -= shared
    if not locked:
        return _failed("no record gives the node a volume of its own; configure a fence agent")
    text = f"locked to the node until it is cut off: {', '.join(sorted(locked))}"
    if shared:
        text += f"; shared and not fenced: {', '.join(sorted(shared))}"
    return RemedyOutcome(
        result=MethodResult.DONE, proofs=(FenceProof.STORAGE,), storage=tuple(sorted(locked)), message=text
    )


async def end_pods(
    client: KubeClient, clock: Clock, task: RemedyTask, settings: RemedySettings
) -> RemedyOutcome:
    """Ask the node's agent to end its pods, by deleting them gracefully; done when it has confirmed the end of all.

    Nothing is proven, and nothing released: a pod whose agent does not answer keeps its object.
    """
    end = clock.monotonic() + task.method.seconds
    asked: set[str] = set()
    while True:
        left = await _pods(client, task.node.name, settings)
        if not left:
            return RemedyOutcome(result=MethodResult.DONE, message=f"the agent has ended {len(asked)} pods")
        for pod in left:
            if pod.metadata.uid not in asked and pod.metadata.deletion_timestamp is None:
                with contextlib.suppress(NotFound, Conflict):  # it has ended
                    await client.delete(PODS.path(pod.namespace, pod.name), uid=pod.metadata.uid)
            asked.add(pod.metadata.uid)
        if clock.monotonic() >= end:
            return _failed(f"the agent has not ended {len(left)} pods in {task.method.seconds:g} s")
        await clock.sleep(_LOOK_SECONDS)


async def _pods(client: KubeClient, node: str, settings: RemedySettings) -> list[Pod]:
    pages = list_pages(client, PODS.path(), PodList, field_selector=f"spec.nodeName={node}")
    return [pod async for page in pages for pod in page.items if not kept(pod, settings)]


def _failed(message: str) -> RemedyOutcome:
    return RemedyOutcome(result=MethodResult.FAILED, message=message)
