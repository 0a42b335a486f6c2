"""Component of the agent: the connection to the cluster's API server, if there is a kubeconfig."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kubeletx.apiserver.objects.runtime_classes import RuntimeClasses
from kubeletx.pods.model.sources import API

from .node import NodeAssembly
from .part import Part, PartContext

if TYPE_CHECKING:
    from ..cluster.link import ClusterLink


class LinkAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The connection to the cluster's API server, from `make_link`.

    `link` None: the node is in no cluster. `classes`: RuntimeClasses of the cluster and of the configuration.
    """

    link: ClusterLink | None
    classes: RuntimeClasses


def make_link(ctx: PartContext, node: NodeAssembly) -> LinkAssembly:
    """Build the clients and caches for the API server, if a kubeconfig is configured.

    Raises InvalidConfig if the kubeconfig is unusable.
    """
    classes = RuntimeClasses(ctx.config.runtimes.classes)
    kubeconfig = ctx.config.cluster.kubeconfig
    if kubeconfig is None:
        return LinkAssembly(link=None, classes=classes)
    from ..cluster.link import connect  # an agent without a cluster does not load the client

    link = connect(ctx.config, kubeconfig, node.reporter.name, classes, ctx.clock)
    metrics = [*link.client.counts.metrics()]
    if link.client_rotation is not None:
        metrics += link.client_rotation.metrics()
    ctx.made.add(Part(name="link", metrics=metrics, close=(link.close,), objects={API: link.objects}))
    return LinkAssembly(link=link, classes=classes)
