"""Component of the agent: the connection to the cluster's API server."""

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
    """Component built by `make_link_assembly`: the connection to the cluster's API server.

    `link` None: the node is in no cluster. `classes`: RuntimeClasses of the cluster and of the configuration.
    """

    part: Part
    link: ClusterLink | None
    classes: RuntimeClasses


def make_link_assembly(ctx: PartContext, node: NodeAssembly) -> LinkAssembly:
    """Build the clients and caches for the API server, if a kubeconfig is configured.

    Raises InvalidConfig if the kubeconfig is unusable.
    """
    classes = RuntimeClasses(ctx.config.runtimes.classes)
    kubeconfig = ctx.config.cluster.kubeconfig
    if kubeconfig is None:
        return LinkAssembly(part=Part(name="link"), link=None, classes=classes)
    from ..cluster.link import make_link  # an agent without a cluster does not load the client

    link = make_link(ctx.config, kubeconfig, node.reporter.name, classes, ctx.clock)
    part = Part(name="link", close=(link.close,), objects={API: link.objects})
    return LinkAssembly(part=part, link=link, classes=classes)
