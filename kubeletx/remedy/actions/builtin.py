"""Built-in methods: cordon, taints, release of pods, and their undoing at the end of a flow.

What the controller sets on a Node is noted in an annotation of the same request, so that only that is undone: a node that
another actor had cordoned before stays cordoned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from kubeletx.api import KubeletxError, NotFound
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.resources import NODES

from ..model import FenceProof, MethodResult, NodeView, RemedyOutcome, RemedyTask
from ..policy import NOTE, OUT_OF_SERVICE
from ..release import PodRelease
from .node_pods import end_pods, fence_storage

_TAINT: Final = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


class BuiltinMethods:
    """Carries out the methods of kind ``builtin``."""

    def __init__(self, client: KubeClient, release: PodRelease) -> None:
        self._client = client
        self._release = release
        self._methods: dict[str, Callable[[RemedyTask], Awaitable[RemedyOutcome]]] = {
            "mark-unschedulable": self._cordon,
            "cordon": self._cordon,
            "mark-schedulable": self._restore,
            "restore": self._restore,
            "out-of-service": self._out_of_service,
            "clean-pods": self._clean,
            "remove-node": self._remove_node,
            "storage-fence": lambda task: fence_storage(client, task),
            "end-pods": lambda task: end_pods(client, release.clock, task, release.settings()),
        }

    async def run(self, task: RemedyTask) -> RemedyOutcome:
        method = self._methods.get(task.method.name)
        if method is None:
            known = ", ".join(sorted(self._methods))
            return RemedyOutcome(
                result=MethodResult.FAILED, message=f"no such built-in method; known: {known}"
            )
        try:
            return await method(task)
        except NotFound as error:
            return RemedyOutcome(result=MethodResult.FAILED, message=str(error))
        except KubeletxError as error:  # all of these can be repeated
            return RemedyOutcome(result=MethodResult.FAILED, message=str(error))

    async def _cordon(self, task: RemedyTask) -> RemedyOutcome:
        node = await self._node(task)
        if node.spec.unschedulable:
            return _done("the node is cordoned already")
        await self._patch(node, {"spec": {"unschedulable": True}}, {*_noted(node), "cordon"})
        return _done("cordoned")

    async def _out_of_service(self, task: RemedyTask) -> RemedyOutcome:
        if FenceProof.POWER.value not in task.fence.flow.proofs:
            return RemedyOutcome(
                result=MethodResult.FAILED,
                message="the taint needs a confirmed power fence; put a power method before it",
            )
        node = await self._node(task)
        if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
            return _done("the node has the taint already")
        taints = [*map(msgspec.to_builtins, node.spec.taints), _TAINT]
        await self._patch(node, {"spec": {"taints": taints}}, {*_noted(node), OUT_OF_SERVICE})
        return _done("tainted out-of-service")

    async def _clean(self, task: RemedyTask) -> RemedyOutcome:
        proofs = tuple(FenceProof(text) for text in task.fence.flow.proofs)
        if not proofs:
            return RemedyOutcome(
                result=MethodResult.FAILED,
                message="the pods stay: no fence of the node is confirmed; put a power or storage method before clean-pods",
            )
        result = await self._release.release(task.fence)
        return _done(str(result)) if not result.left else _failed(str(result))

    async def _remove_node(self, task: RemedyTask) -> RemedyOutcome:
        if FenceProof.POWER.value not in task.fence.flow.proofs:
            return _failed(
                "the Node stays: no power fence is confirmed; put a power method before remove-node"
            )
        await self._client.delete(NODES.path(name=task.node.name), uid=task.node.metadata.uid)
        return _done("the Node is deleted")

    async def _restore(self, task: RemedyTask) -> RemedyOutcome:
        node = await self._node(task)
        noted = _noted(node)
        spec: dict[str, Any] = {}
        if "cordon" in noted and node.spec.unschedulable:
            spec["unschedulable"] = None
        left = [taint for taint in node.spec.taints if taint.key not in noted]
        if len(left) < len(node.spec.taints):
            spec["taints"] = [*map(msgspec.to_builtins, left)]
        if noted:
            await self._patch(node, {"spec": spec} if spec else {}, set())
        return _done("what the flow had set is removed" if spec else "nothing was set")

    async def _node(self, task: RemedyTask) -> NodeView:
        node = await self._client.get(NODES.path(name=task.node.name), NodeView)
        if node.metadata.uid != task.node.metadata.uid:
            raise NotFound(f"node {task.node.name} is another one now")
        return node

    async def _patch(self, node: NodeView, change: dict[str, Any], noted: set[str]) -> None:
        """Write `change` and the annotation in one request, if nothing else has changed the node meanwhile."""
        metadata = {
            "resourceVersion": node.metadata.resource_version,
            "annotations": {NOTE: ",".join(sorted(noted)) or None},
        }
        path = NODES.path(name=node.name)
        await self._client.patch(path, {**change, "metadata": metadata}, NodeView, kind=Patch.MERGE)


def _noted(node: NodeView) -> set[str]:
    return set(filter(None, node.metadata.annotations.get(NOTE, "").split(",")))


def _failed(message: str) -> RemedyOutcome:
    return RemedyOutcome(result=MethodResult.FAILED, message=message)


def _done(message: str) -> RemedyOutcome:
    return RemedyOutcome(result=MethodResult.DONE, message=message)
