"""Part: the connection to the cluster's API server."""

from __future__ import annotations

import msgspec

from kubeletx.apiserver.objects.runtime_classes import RuntimeClasses
from kubeletx.pods.model.sources import API

from ..cluster.link import ClusterLink, make_link
from .node import NodeRoom
from .part import Part, PartContext


class LinkRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the connection. `link` None: the node is in no cluster. `classes`: of cluster and configuration."""

    part: Part
    link: ClusterLink | None
    classes: RuntimeClasses


def make_link_room(ctx: PartContext, node: NodeRoom) -> LinkRoom:
    """Read the kubeconfig, if configured. Raises InvalidConfig if it is unusable."""
    classes = RuntimeClasses(ctx.config.runtimes.classes)
    link = make_link(ctx.config, node.reporter.name, classes, ctx.clock)
    part = Part(name="link")
    if link is not None:
        part = Part(name="link", close=(link.close,), objects={API: link.objects})
    return LinkRoom(part=part, link=link, classes=classes)
