"""Remedies that are Jobs: one Job per operation; its name is made from the operation's identity.

Creating it again finds the first one, so that a repeated create acts once. The job of an operation is kept until a later operation
of the node begins or the flow ends (`JobAction.clean`): a job that is missing in a repeat may have run, so the result is unknown.
While a pod of the job exists, the Node has annotations ``remediation-timestamp`` and ``remediation-podname``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from kubeletx.api import AlreadyExists, Clock, Conflict, KubeletxError, NotFound, TimedOut
from kubeletx.api.waiting import within
from kubeletx.kube.client import Patch
from kubeletx.kube.client.resources import JOBS, NODES, PODS
from kubeletx.kube.types.core import Pod, PodList
from kubeletx.kube.types.job import Job, JobEnd, JobList, job_end

from ..model import FenceMethod, MethodResult, NodeView, RemedyOutcome, RemedyTask
from .pod_template import REMEDY_NODE, REMEDY_OPERATION, job_manifest, job_name, node_label
from .requests import answered, done, not_done

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

log = structlog.get_logger(__name__)

T = TypeVar("T")

TIMESTAMP: Final = "remediation-timestamp"
POD_NAME: Final = "remediation-podname"
_STOP_SECONDS: Final = 15.0
"""Deadline for suspending a job that did not end in time."""


class JobAction:
    """Runs methods of kind ``job``. Jobs and their pods are in one namespace."""

    def __init__(
        self, client: KubeClient, *, clock: Clock, namespace: str, poll_seconds: float = 1.0
    ) -> None:
        """`poll_seconds`: time between two looks at a job."""
        self._client, self._clock, self._namespace = client, clock, namespace
        self._poll_seconds = poll_seconds

    async def run(self, task: RemedyTask) -> RemedyOutcome:
        """Run the job and wait for its end. Only an ended job counts as done or failed.

        FAILED: nothing was started, or the job failed. UNKNOWN: the job is missing, cannot be read, or did not end in time; it
        is suspended then, which ends its pods.
        """
        seconds, began = task.method.seconds, self._clock.monotonic()
        name = job_name(task.operation.id, task.method.name)
        path = JOBS.path(self._namespace, name)
        acts = task.is_repeat
        try:
            if not task.is_repeat:
                async with within(seconds, "pods of an earlier remedy of this node did not end"):
                    await self._end_others(task.node, but=task.operation.id)
                    while pod := await self._running_pod(task.node):
                        log.debug("Waiting for the pod of an earlier remedy", pod=pod, node=task.node.name)
                        await self._clock.sleep(self._poll_seconds)
            left = max(0.0, seconds - (self._clock.monotonic() - began))
            async with within(left, f"job {self._namespace}/{name} did not end"):
                if not task.is_repeat:
                    acts = True
                    if problem := await self._create(task):
                        return RemedyOutcome(result=MethodResult.FAILED, message=problem)
                return await self._end_of(task, path)
        except TimedOut as error:
            if acts:
                await self._stop(path)
            return not_done(acts, error)
        except KubeletxError as error:
            return not_done(acts, error)

    async def clean(self, node: NodeView, method: FenceMethod) -> None:
        """Delete all jobs of this node, and their pods, once the flow has ended. Raises KubeletxError."""
        await self._end_others(node, but="")

    async def _create(self, task: RemedyTask) -> str:
        """Create the job; return why the API server refused it, or ""."""
        manifest = job_manifest(task, self._namespace)
        try:
            await self._ask(lambda: self._client.create(JOBS.path(self._namespace), manifest, Job))
        except AlreadyExists:  # of an earlier try without an answer; `_end_of` checks whose it is
            return ""
        except KubeletxError as error:
            return f"the job cannot be created: {error}"
        return ""

    async def _end_of(self, task: RemedyTask, path: str) -> RemedyOutcome:
        """Wait for the job's end. Raises NotFound if it is missing."""
        signed = ""
        while True:
            job = await self._ask(lambda: self._client.get(path, Job))
            where = f"job {self._namespace}/{job.metadata.name}"
            if job.metadata.annotations.get(REMEDY_OPERATION) != task.operation.id:
                raise Conflict(f"{where} belongs to another operation; delete it if no remedy uses it")
            if ended := job_end(job):
                end, condition = ended
                await self._sign(task, job, "")
                if end is JobEnd.COMPLETE:
                    return done(task, f"{where} completed")
                is_late = condition.reason == "DeadlineExceeded"
                text = f"{where} failed: {condition.reason}: {condition.message}"
                return RemedyOutcome(
                    result=MethodResult.UNKNOWN if is_late else MethodResult.FAILED, message=text
                )
            if not signed and (signed := await self._pod_of(job)):
                await self._sign(task, job, signed)
            await self._clock.sleep(self._poll_seconds)

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await answered(self._client, self._clock, call)

    async def _end_others(self, node: NodeView, *, but: str) -> None:
        """Delete the node's jobs of other operations; their pods end in the background."""
        found = await self._list(JOBS.path(self._namespace), JobList, node)
        for job in found.items:
            if but and job.metadata.annotations.get(REMEDY_OPERATION) == but:
                continue
            meta = job.metadata
            with contextlib.suppress(NotFound, Conflict):
                path = JOBS.path(self._namespace, meta.name)
                await self._client.delete(path, uid=meta.uid, propagation="Background")

    async def _running_pod(self, node: NodeView) -> str:
        """Return the name of a pod of an earlier job that may still act; empty if there is none.

        Pods on the sick node itself are left out: while its kubelet does not answer they never end.
        """
        pods = await self._list(PODS.path(self._namespace), PodList, node)
        return next((pod.metadata.name for pod in pods.items if _may_act(pod, node.name)), "")

    async def _pod_of(self, job: Job) -> str:
        params = {"labelSelector": f"batch.kubernetes.io/job-name={job.metadata.name}"}
        with contextlib.suppress(KubeletxError):
            pods = await self._client.get(PODS.path(self._namespace), PodList, params=params)
            return next((pod.metadata.name for pod in pods.items), "")
        return ""

    async def _list(self, path: str, type_: type[T], node: NodeView) -> T:
        params = {"labelSelector": f"{REMEDY_NODE}={node_label(node.name)}"}
        return await self._ask(lambda: self._client.get(path, type_, params=params))

    async def _sign(self, task: RemedyTask, job: Job, pod: str) -> None:
        """Write name and start of the job's pod into the Node's annotations; remove them if `pod` is empty."""
        started = job.status.start_time or job.metadata.creation_timestamp
        values: dict[str, Any] = {TIMESTAMP: None, POD_NAME: None}
        if pod:
            values = {TIMESTAMP: started, POD_NAME: pod}
        patch = {"metadata": {"uid": task.node.metadata.uid, "annotations": values}}
        try:
            await self._client.patch(NODES.path(name=task.node.name), patch, NodeView, kind=Patch.MERGE)
        except KubeletxError as error:  # the NodeFence names the job too
            log.warning("Cannot annotate a node", node=task.node.name, err=str(error))

    async def _stop(self, path: str) -> None:
        with contextlib.suppress(KubeletxError):
            async with within(_STOP_SECONDS, "the job cannot be suspended"):
                suspended = {"spec": {"suspend": True}}
                await self._ask(lambda: self._client.patch(path, suspended, Job, kind=Patch.MERGE))


def _may_act(pod: Pod, node: str) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed") and pod.spec.node_name != node
