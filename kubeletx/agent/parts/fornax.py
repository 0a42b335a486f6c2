"""Component of the agent: the node under its FornaxCores, if it has any."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import InvalidConfig, NotFound
from kubeletx.pods.model.sources import FORNAX
from kubeletx.server.views import PartHealth

from ..config.tree import FornaxSettings
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .views import ViewsAssembly

if TYPE_CHECKING:
    from kubeletx.fornax.link import TlsFiles
    from kubeletx.fornax.views import FornaxStatus
    from kubeletx.sessions.service import Sessions

NAMESPACE = "fornax.centaurusinfra.io"
"""Namespace of nodes in a published core."""


def make_fornax(
    ctx: PartContext,
    node: NodeAssembly,
    runtimes: RuntimesAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
    sessions: Sessions,
) -> Callable[[], msgspec.Struct]:
    """Connect the node to the configured cores; returns a function that reports the state of the connections.

    Without configured cores, the room is not imported, and the function raises NotFound.
    """
    settings = ctx.config.fornax
    if not settings.cores:
        return _no_cores
    from kubeletx.fornax.content import NodeContent
    from kubeletx.fornax.cores import parse_seeds
    from kubeletx.fornax.link import LinkSettings
    from kubeletx.fornax.mailbox import Mailbox
    from kubeletx.fornax.node_actor import CoreSettings, NodeActor
    from kubeletx.fornax.node_records import METADATA as NODE_METADATA
    from kubeletx.fornax.node_records import NodeRecords
    from kubeletx.fornax.pods.actor import CoreServices
    from kubeletx.fornax.pods.records import POD_METADATA, CorePodRecords
    from kubeletx.fornax.pods.registry import CorePods
    from kubeletx.fornax.reconcile import Reconciler
    from kubeletx.fornax.status import metrics, node_status
    from kubeletx.fornax.stubs.fornaxcore_pb2 import NodeIdentifier

    name = node.reporter.name
    address = next(iter(node.reporter.ips), "127.0.0.1")
    identity = NodeIdentifier(ip=address, identifier=settings.identifier or f"{NAMESPACE}/{name}")
    mailbox = Mailbox(ctx.clock)
    core_pods = CorePods(
        CoreServices(
            clock=ctx.clock,
            manager=pods.manager,
            board=pods.services.board,
            sessions=sessions,
            records=CorePodRecords(ctx.store),
            node=identity.identifier,
            node_name=name,
            host_ip=address,
            liveness_seconds=settings.liveness_seconds,
        ),
        changed=mailbox.pod,
    )
    content = NodeContent(
        core_pods,
        mailbox,
        watch_node=views.node.watch_node,
        apply_pod_cidrs=runtimes.pod_cidrs.apply,
    )
    actor = NodeActor(
        content,
        mailbox,
        identity=identity,
        seeds=parse_seeds(settings.cores),
        records=NodeRecords(ctx.store),
        settings=CoreSettings(link=LinkSettings(tls=_tls(settings)), state_seconds=settings.state_seconds),
        clock=ctx.clock,
    )
    core_pods.objects.subscribe(pods.manager.objects_changed)
    reconciler = Reconciler(core_pods.repairs(), ready=core_pods.ready, clock=ctx.clock)
    repaired = ChainMap(reconciler.repaired, sessions.repaired)
    status = partial(node_status, actor, repaired)
    ctx.made.add(
        Part(
            name="fornax",
            tables=(POD_METADATA, NODE_METADATA),
            load=core_pods.load,
            recovered=core_pods.recovered,
            sources=(FORNAX,),
            objects={FORNAX: core_pods.objects},
            tasks=(
                Task(name="fornax-pods", run=core_pods.run),
                Task(name="fornax-content", run=content.run),
                Task(name="fornax-reconcile", run=reconciler.run),
            ),
            feeds=(Task(name="fornax-node", run=actor.run),),
            close=(actor.close,),
            metrics=metrics(actor, repaired, reconciler.failed),
            health=(partial(_health, status),),
        )
    )
    return status


def _no_cores() -> msgspec.Struct:
    raise NotFound("the agent has no FornaxCores; start it with --fornaxcore-url")


def _health(status: Callable[[], FornaxStatus]) -> tuple[PartHealth, ...]:
    """Return health check ``fornaxcore``. It never fails, since pods run on without a core.

    Its message names each core that does not answer, with the reason.
    """
    down = [
        f"{core.address} does not answer: {core.problem}" for core in status().cores if not core.connected
    ]
    return (PartHealth(name="fornaxcore", ok=True, message="; ".join(down)),)


def _tls(settings: FornaxSettings) -> TlsFiles | None:
    from kubeletx.fornax.link import TlsFiles

    if settings.ca_file is None:
        return None
    for name, path in (("ca", settings.ca_file), ("cert", settings.cert_file), ("key", settings.key_file)):
        if path is not None:
            _check_pem(f"--fornaxcore-{name}-file", path)
    return TlsFiles(authority=settings.ca_file, certificate=settings.cert_file, key=settings.key_file)


def _check_pem(flag: str, path: Path) -> None:
    """Raise InvalidConfig for a file that is wrong at the start; later, the link tries again."""
    try:
        data = path.read_bytes()
    except OSError as error:
        problem = f"{str(path)!r} cannot be read: {error.strerror}"
        raise InvalidConfig(field=flag, problem=problem, fix="correct the path") from error
    if b"-----BEGIN " not in data:
        raise InvalidConfig(field=flag, problem=f"{str(path)!r} is not a PEM file", fix="give a PEM file")
