"""Component of the agent: application sessions, and the session service that instances connect to."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from kubeletx.api.counting import counter

from ..backend.session_readings import SessionReadings
from ..config.ports import split_address
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .volumes import VolumesAssembly

if TYPE_CHECKING:
    from kubeletx.sessions.service import Sessions
    from kubeletx.sessions.usage import SessionUsage


def make_sessions(
    ctx: PartContext, node: NodeAssembly, volumes: VolumesAssembly, pods: PodsAssembly
) -> Sessions:
    """Build the room of sessions. Its service starts with the first pod that has sessions, or for a TCP address."""
    # Imported here: the messages of the service need protobuf, which other parts load only for runtimes that use CRI.
    from kubeletx.sessions.extras import AccessSettings, SessionAccess
    from kubeletx.sessions.model import SessionLimits
    from kubeletx.sessions.records import SESSION_TABLES, SessionRecords
    from kubeletx.sessions.service import Sessions, access_to

    settings = ctx.config.sessions
    sessions = Sessions(
        pods=access_to(pods.manager),
        records=SessionRecords(ctx.store, ctx.clock),
        clock=ctx.clock,
        limits=SessionLimits(
            liveness_seconds=settings.liveness_seconds, heartbeat_seconds=settings.heartbeat_seconds
        ),
    )
    access = SessionAccess(
        AccessSettings(
            root=ctx.config.root_dir / "sessions",
            pod_directory=node.context.pod_directory,
            node=node.reporter.name,
            address=settings.address,
            reached_at=_reached_at(settings.address, node.reporter.ips),
        ),
        sessions=sessions,
        blocking=volumes.files,
        clock=ctx.clock,
    )
    ctx.made.add(
        Part(
            name="sessions",
            tables=(SESSION_TABLES,),
            load=sessions.load,
            recovered=sessions.ask_again,
            evacuation=sessions.evacuation(),
            extras={"sessions": access.provide},
            status_listeners=(sessions.pod_changed, access.pod_changed),
            tasks=(Task(name="sessions", run=sessions.run), Task(name="session-service", run=access.run)),
            close=(sessions.stop, access.close),
            metrics=(
                counter(
                    "kubeletx_sessions_removed_total",
                    "Ended sessions, and instances without a pod, that were removed from the state database.",
                    lambda: [
                        (("session",), sessions.removed),
                        (("instance",), sessions.repaired["instances"]),
                    ],
                    "kind",
                ),
            ),
        )
    )
    return sessions


def make_session_usage(
    ctx: PartContext,
    node: NodeAssembly,
    volumes: VolumesAssembly,
    runtimes: RuntimesAssembly,
    pods: PodsAssembly,
    sessions: Sessions,
) -> SessionUsage:
    """Count what sessions use. Nothing runs before the first session is open."""
    from kubeletx.sessions.usage import SessionUsage
    from kubeletx.sessions.usage_records import USAGE_TABLES, UsageFile, UsageRecords

    readings = SessionReadings(
        manager=pods.manager,
        context=node.context,
        cgroups=pods.cgroups,
        trees=ctx.host.trees,
        registry=runtimes.registry,
        blocking=volumes.files,
    )
    usage = SessionUsage(
        sessions,
        read=readings.read,
        records=UsageRecords(ctx.store, ctx.clock),
        file=UsageFile(ctx.config.root_dir / "sessions" / "usage.jsonl"),
        blocking=volumes.files,
        clock=ctx.clock,
    )
    ctx.made.add(
        Part(
            name="session-usage",
            tables=(USAGE_TABLES,),
            load=usage.load,
            tasks=(Task(name="session-usage", run=usage.run),),
            close=(usage.stop,),
            metrics=usage.metrics(),
        )
    )
    return usage


def _reached_at(address: str | None, node_ips: tuple[str, ...]) -> str:
    """Return the address for machines: the node's own if the service listens on all addresses."""
    if address is None:
        return ""
    host, port = split_address(address)
    if not ipaddress.ip_address(host).is_unspecified or not node_ips:
        return address
    return f"[{node_ips[0]}]:{port}" if ":" in node_ips[0] else f"{node_ips[0]}:{port}"
