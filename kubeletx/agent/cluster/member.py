"""`Cluster`: the tasks with which the node takes part in a cluster; built only if there is a kubeconfig."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from kubeletx.api import Clock
from kubeletx.api.names import EXTERNAL_CLOUD_TAINT
from kubeletx.apiserver.certificates.rotation import CertificateRotation
from kubeletx.apiserver.events import EventReporter
from kubeletx.apiserver.mirrors.form import Key
from kubeletx.apiserver.mirrors.mirrors import Mirrors
from kubeletx.apiserver.node.api_node import ApiNode
from kubeletx.apiserver.node.claim import Identity
from kubeletx.apiserver.node.lease import NodeLease
from kubeletx.apiserver.node.taints import TypeTaints
from kubeletx.apiserver.pods import ApiPods
from kubeletx.apiserver.status.reporter import StatusReporter
from kubeletx.kube.client import Reflector
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.lease import micro_time
from kubeletx.kube.types.node import Node, Taint
from kubeletx.node.info import read_system_info
from kubeletx.pods import DesiredPod, PodManager
from kubeletx.pods.model.sources import API

from ..config.kubelet_words import EXTERNAL
from ..config.tree import AgentConfig
from ..host.source_health import SourceHealth
from ..host.supervise import supervise
from .link import ClusterLink


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that connect the node to its cluster: registration, lease, pods, statuses, mirror pods, events.

    `run` runs their tasks. `health`: counts the failures of the task that watches pods. `server_rotation`: renews the
    serving certificate; None if the cluster does not sign it. `taints`: keeps the taints of workload types without a
    ready runtime up to date; None if no kubeconfig for that is configured.
    """

    clock: Clock
    health: SourceHealth
    link: ClusterLink
    node: ApiNode
    pods: ApiPods
    lease: NodeLease
    statuses: StatusReporter
    mirrors: Mirrors
    server_rotation: CertificateRotation | None
    taints: TypeTaints | None
    events: EventReporter
    pod_reflector: Reflector[Pod]
    node_reflector: Reflector[Node]

    async def run(self) -> None:
        """Request the node's first certificate if it has none, then run the tasks until cancelled.

        The request may wait for an approval in the cluster. Static pods start meanwhile.
        """
        if self.link.found.bootstrap is not None:
            await supervise("api-bootstrap", self.link.found.bootstrap.run, self.clock)
        async with asyncio.TaskGroup() as group:
            for name, run in self._tasks().items():
                task = f"api-{name}"
                on_failure = functools.partial(self.health.failed, API) if name == "pods" else None
                group.create_task(supervise(task, run, self.clock, on_failure), name=task)

    def _tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the background tasks by name.

        Tasks that report to the cluster run only while no other agent uses the same node name.
        """
        perhaps = {
            "client-certificate": self.link.client_rotation,
            "server-certificate": self.server_rotation,
        }
        reports: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "node": self.node.run,
            "pod-status": self.statuses.run,
            "mirrors": self._mirror_pods,
            "held-pods": self._begin_held_pods,
            **({"taints": self.taints.run} if self.taints is not None else {}),
        }
        while_allowed = self.lease.reporting.while_allowed
        return {
            **{name: part.run for name, part in perhaps.items() if part is not None},
            **{name: functools.partial(while_allowed, run) for name, run in reports.items()},
            "node-watch": self._follow_node,
            "node-lease": self._renew_lease,
            "pods": self._follow_pods,
            "events": self.events.run,
            "objects": self.link.objects.run,
            "runtime-classes": self.link.class_reflector.run,
        }

    async def _follow_node(self) -> None:
        """Wait until the Node is registered, then watch it.

        In a list made earlier the Node would be missing, which looks like its deletion.
        """
        await self.node.registered.wait()
        await self.node_reflector.run()

    async def _renew_lease(self) -> None:
        """Claim the node's name, wait until the Node is registered, then create its Lease and renew it.

        The Node owns the Lease, so that both are deleted together; hence the order. Tasks that report to the cluster
        wait for the claim.
        """
        await self.lease.claim()
        await self.node.registered.wait()
        await self.lease.run()

    async def _follow_pods(self) -> None:
        """Watch the node's pods, after the Node is registered and the RuntimeClasses are listed.

        The node authorizer refuses a watch of pods before the Node exists.
        """
        await self.node.registered.wait()
        await self.link.wait_classes()
        await self.pod_reflector.run()

    async def _begin_held_pods(self) -> None:
        """Start the pods that were not started while another agent used the node's name, then wait until cancelled."""
        self.pods.begin_all()
        await asyncio.Event().wait()

    async def _mirror_pods(self) -> None:
        """Wait until the existing mirror pods are listed, then create and update mirror pods of static pods."""
        await self.pod_reflector.synced.wait()
        await self.mirrors.run()


def identity_of(agent_id: str, clock: Clock) -> Identity:
    """Return the identity with which this agent claims the node's name in the Lease.

    It consists of agent id, boot id, machine id, process id and the present time (`since`).
    """
    machine = read_system_info(kubelet_version="", runtime=None)
    return Identity(
        agent=agent_id,
        boot=machine.boot_id,
        machine=machine.system_uuid,
        pid=os.getpid(),
        since=micro_time(clock.now()),
    )


def registration_taints(config: AgentConfig) -> tuple[Taint, ...]:
    """Return the taints that the node is registered with, except the taints of its workload types.

    These are the configured ones, and the taint for a cloud controller if ``cloud-provider`` is external.
    """
    taints = config.cluster.register_with_taints
    if config.node.cloud_provider != EXTERNAL:
        return taints
    return (*taints, Taint(key=EXTERNAL_CLOUD_TAINT, value="true", effect="NoSchedule"))


def static_pods(manager: PodManager) -> tuple[dict[Key, DesiredPod], set[Key]]:
    """Return the static pods that get mirror pods, by namespace and name, and the keys of unclaimed ones.

    A pod is unclaimed if no source has delivered it since the agent started.
    """
    here = {
        (desired.pod.namespace, desired.pod.name): desired
        for desired in (worker.desired for worker in manager.workers.values())
        if desired.traits.mirrored
    }
    return here, {key for key, pod in here.items() if manager.is_orphan(pod.uid)}
