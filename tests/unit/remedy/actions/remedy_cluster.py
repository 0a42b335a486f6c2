"""A cluster with one sick node, for tests of remedies that act through the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from kubeletx.api import SystemClock
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.remedy.actions.pod_template import job_manifest, job_name
from kubeletx.remedy.model import (
    FenceFlow,
    FenceMethod,
    FenceOperation,
    FlowStep,
    NodeFence,
    NodeView,
    RemedyOutcome,
    RemedyTask,
)
from kubeletx_testing.apiserver import ApiServerDouble, StatusError
from kubeletx_testing.waiting import until

NODE = "sick.example"
NAMESPACE = "kube-system"
POLL_SECONDS = 0.01

Json = dict[str, Any]


class RemedyCluster:
    """The double and a client of it. `node`: the sick node."""

    def __init__(self, api: ApiServerDouble) -> None:
        self.api, self.admin = api, api.admin
        self.clock = SystemClock()
        self.client = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=self.clock)
        made = self.admin.create("nodes", {"metadata": {"name": NODE, "labels": {"type": "compute"}}})
        self.node = msgspec.convert(made, NodeView)
        self._running: list[asyncio.Task[RemedyOutcome]] = []

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.client.close()

    def task(
        self,
        operation: str = "op-1",
        *,
        step: FlowStep = FlowStep.POWER,
        is_repeat: bool = False,
        **method: Any,
    ) -> RemedyTask:
        """Return a task for the sick node; `method`: fields of its `FenceMethod`."""
        return RemedyTask(
            node=self.node,
            fence=NodeFence(node=NODE, flow=FenceFlow(reasons=("Ready=False for 5s",), remedy_name="repair")),
            step=step,
            method=FenceMethod(**{"name": "repair", "kind": "job", "seconds": 60.0, **method}),
            operation=FenceOperation(id=operation),
            is_repeat=is_repeat,
        )

    def start(self, run: Coroutine[Any, Any, RemedyOutcome]) -> asyncio.Task[RemedyOutcome]:
        self._running.append(asyncio.create_task(run))
        return self._running[-1]

    def annotations(self) -> Json:
        found: Json = self.admin.get("nodes", NODE)["metadata"].get("annotations") or {}
        return found

    # --- jobs ---

    def find_job(self, operation: str = "op-1") -> Json | None:
        try:
            return self.admin.get("jobs", job_name(operation, "repair"), NAMESPACE)
        except StatusError:
            return None

    async def job(self, operation: str = "op-1") -> Json:
        """Return the job of an operation once it exists."""
        await until(lambda: self.find_job(operation))
        found = self.find_job(operation)
        assert found is not None
        return found

    def create_job(self, task: RemedyTask) -> Json:
        """Create the job of this task, as an earlier controller did."""
        return self.admin.create("jobs", job_manifest(task, NAMESPACE), NAMESPACE)

    def add_pod(self, job: Json, name: str, node: str = "well", phase: str = "Running") -> None:
        """Create a pod of this job, as the job controller does."""
        template = job["spec"]["template"]
        metadata = {**template["metadata"], "name": name, "namespace": NAMESPACE}
        self.admin.create(
            "pods", {"metadata": metadata, "spec": {**template["spec"], "nodeName": node}}, NAMESPACE
        )
        status = {"metadata": {"name": name, "namespace": NAMESPACE}, "status": {"phase": phase}}
        self.admin.patch("pods", name, status, namespace=NAMESPACE, subresource="status")

    def end_job(self, job: Json, end: str, reason: str = "") -> None:
        """Write the status of an ended job, as the job controller does. `end`: Complete or Failed."""
        first = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[end]
        now = "2026-01-01T00:00:00Z"
        conditions = [
            {
                "type": type_,
                "status": "True",
                "reason": reason,
                "message": "as told",
                "lastTransitionTime": now,
            }
            for type_ in (first, end)
        ]
        status: Json = {"conditions": conditions, "startTime": now}
        if end == "Complete":
            status |= {"completionTime": now, "succeeded": 1}
        self.admin.patch(
            "jobs", job["metadata"]["name"], {"status": status}, namespace=NAMESPACE, subresource="status"
        )
