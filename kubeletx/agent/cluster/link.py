"""The connection to the cluster, and caches of the cluster's objects that pods refer to.

It is built before the components of the agent that run pods, since these read the objects.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec

import kubeletx
from kubeletx.api import Clock, KubeletxError
from kubeletx.apiserver.certificates.rotation import CertificateRotation
from kubeletx.apiserver.node.api_node import ApiNode
from kubeletx.apiserver.objects.api_objects import ApiObjects
from kubeletx.apiserver.objects.runtime_classes import RuntimeClasses
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.resources import RUNTIME_CLASSES
from kubeletx.kube.types.node import Node
from kubeletx.kube.types.objects import RuntimeClass
from kubeletx.pods import PodManager
from kubeletx.pods.admission import NodeAdmission
from kubeletx.runtimes.images.limits import TokenBucket

from ..config.tree import AgentConfig
from .access import NodeAccess, client_rotation, node_access

CLASSES_SECONDS = 5.0
LABELS_SECONDS = 5.0


class ClusterLink(msgspec.Struct, frozen=True, kw_only=True):
    """The node's connection to its cluster: client, access, and caches of the objects that pods refer to.

    `client_rotation` None: the client certificate is not rotated. `taint_client`: client whose identity may change the
    node's taints; None if none is configured. `objects`: config maps, secrets and other objects that pods refer to.
    """

    client: KubeClient
    found: NodeAccess
    client_rotation: CertificateRotation | None
    taint_client: KubeClient | None
    objects: ApiObjects
    class_reflector: Reflector[RuntimeClass]

    async def close(self) -> None:
        await self.client.close()
        if self.taint_client is not None:
            await self.taint_client.close()

    def bind(self, manager: PodManager, node: ApiNode, admission: NodeAdmission) -> None:
        """Connect the watched API objects with their users.

        From now on, a change of an object is reported to the workers of the pods that refer to it. The Node's labels
        and taints are passed to admission, and the labels also to `objects`.
        """

        def node_changed(node: Node | None) -> None:
            if node is None:
                admission.relabel(None)
            else:
                admission.relabel(node.metadata.labels, node.spec.taints)
            self.objects.node_labels = admission.labels

        async def look_at_node() -> None:
            with contextlib.suppress(KubeletxError, TimeoutError):
                async with asyncio.timeout(LABELS_SECONDS):
                    await node.refresh()

        self.objects.node_labels = admission.labels  # used until the Node is read, for pods that run already
        self.objects.subscribe(manager.objects_changed)
        node.subscribe(node_changed)
        admission.follow(look_at_node)

    async def wait_classes(self) -> None:
        """Wait until the cluster's RuntimeClasses are listed, at most `CLASSES_SECONDS`.

        A pod that names a RuntimeClass which is not known by then waits until the class is known.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLASSES_SECONDS):
                await self.class_reflector.synced.wait()


def connect(
    config: AgentConfig, kubeconfig: Path, node_name: str, classes: RuntimeClasses, clock: Clock
) -> ClusterLink:
    """Make the clients and caches for the cluster of this kubeconfig; no connection is opened yet.

    Raises InvalidConfig for an unusable kubeconfig. `classes`: is kept up to date with the cluster's RuntimeClasses.
    """
    settings = config.cluster
    node = node_access(config, kubeconfig, node_name, clock)
    agent = f"kubeletx/{kubeletx.__version__}"
    client = KubeClient(
        node.access,
        clock=clock,
        user_agent=agent,
        throttle=TokenBucket(clock, settings.qps, settings.burst).take,
    )
    taint_client = None
    if settings.taint_kubeconfig is not None:
        access = load_kubeconfig(settings.taint_kubeconfig)
        taint_client = KubeClient(
            access,
            clock=clock,
            user_agent=f"{agent} taints",
            counts=client.counts,
            reach=client.reach if access.server == client.access.server else None,
        )
    return ClusterLink(
        client=client,
        found=node,
        taint_client=taint_client,
        client_rotation=client_rotation(config, node, client, node_name, clock),
        objects=ApiObjects(client, node_name, clock=clock),
        class_reflector=Reflector(client, RUNTIME_CLASSES, RuntimeClass, classes, clock=clock),
    )
