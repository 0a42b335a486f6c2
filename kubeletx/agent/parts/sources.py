"""Component of the agent: pod sources other than the API server: manifest files, a manifest URL, `kubeletx apply`."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import structlog

from kubeletx.api import EventSink, ObjectRef
from kubeletx.api.names import Event
from kubeletx.kube.manifests.unknown_fields import unknown
from kubeletx.kube.types.core import Pod
from kubeletx.pods.model.sources import APPLIED, FILE, URL
from kubeletx.runtimes.endpoints.kinds import WorkloadTypes
from kubeletx.static.applied import AppliedSource
from kubeletx.static.applied_objects import AppliedObjects
from kubeletx.static.file import FileSource
from kubeletx.static.local_objects import LocalObjects
from kubeletx.static.manifest import ManifestReader, OnUnknown
from kubeletx.static.url import UrlSource

from ..host.source_health import SourceHealth
from .node import NodeAssembly
from .part import Part, PartContext, Run, Task
from .pods import PodsAssembly

log = structlog.get_logger(__name__)


class SourcesAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The pod sources other than the API server, from `make_sources`.

    `applied`: the source of pods that the admin socket applies. `health`: counts the failures of all pod sources,
    including the API server's. `objects`: config maps, secrets and claims of pods that come from no cluster.
    """

    applied: AppliedSource
    objects: LocalObjects
    applied_objects: AppliedObjects
    health: SourceHealth


def make_sources(ctx: PartContext, node: NodeAssembly, pods: PodsAssembly) -> SourcesAssembly:
    """Build the configured pod sources; the source of pods of `kubeletx apply` always exists."""
    workload_types = WorkloadTypes(ctx.plugins.kinds)
    reader = ManifestReader(node_name=node.reporter.name, workload_types=workload_types)
    on_unknown = functools.partial(_warn, node.events)
    applied = AppliedSource(
        directory=_directory(ctx.config.applied_directory),
        sink=pods.manager,
        node_name=node.reporter.name,
        clock=ctx.clock,
        workload_types=workload_types,
        is_bound=pods.manager.is_bound,
    )
    objects = LocalObjects(claims=ctx.config.root_dir / "claims")
    objects.subscribe(pods.manager.objects_changed)
    applied_objects = AppliedObjects(
        directory=ctx.config.applied_directory / "objects", objects=objects, clock=ctx.clock
    )
    runs: dict[str, Run] = {APPLIED: applied.start}
    if (file := _file_source(ctx, pods, reader, on_unknown, objects)) is not None:
        runs[FILE] = file.run
    else:
        objects.set_complete()
    if (url := _url_source(ctx, pods, reader, on_unknown)) is not None:
        runs[URL] = url.run
    health = SourceHealth(clock=ctx.clock, events=node.events, node=node.ref)
    feeds = tuple(
        Task(name=f"source-{name}", run=run, on_failure=functools.partial(health.failed, name))
        for name, run in runs.items()
    )
    ctx.made.add(
        Part(
            name="sources",
            sources=tuple(runs),
            load=applied_objects.load,
            feeds=feeds,
            close=(applied.close,),
            health=(health.parts,),
            objects=dict.fromkeys((APPLIED, FILE, URL), objects),
        )
    )
    return SourcesAssembly(applied=applied, health=health, objects=objects, applied_objects=applied_objects)


def _file_source(
    ctx: PartContext,
    pods: PodsAssembly,
    reader: ManifestReader,
    on_unknown: OnUnknown,
    objects: LocalObjects,
) -> FileSource | None:
    settings = ctx.config.sources
    if settings.pod_manifest_path is None:
        return None
    return FileSource(
        path=settings.pod_manifest_path,
        sink=pods.manager,
        reader=msgspec.structs.replace(reader, with_objects=True),
        clock=ctx.clock,
        check_seconds=settings.file_check_seconds,
        memory=_directory(ctx.config.root_dir / "manifests"),
        on_unknown=on_unknown,
        objects=objects,
    )


def _url_source(
    ctx: PartContext, pods: PodsAssembly, reader: ManifestReader, on_unknown: OnUnknown
) -> UrlSource | None:
    settings = ctx.config.sources
    if settings.manifest_url is None:
        return None
    return UrlSource(
        url=settings.manifest_url,
        headers=settings.manifest_url_headers,
        sink=pods.manager,
        reader=reader,
        clock=ctx.clock,
        check_seconds=settings.http_check_seconds,
        has_earlier_pods=lambda: pods.manager.has_unclaimed(URL),
        on_unknown=on_unknown,
    )


def _warn(events: EventSink, pod: Pod, fields: tuple[str, ...]) -> None:
    """Log the unknown fields of the pod's manifest, and record a warning event on the pod for each."""
    log.warning("Ignored unknown fields of a manifest", pod=pod.ref, fields=fields)
    ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(pod.uid))
    for field in fields:
        events.record(ref, type="Warning", reason=Event.UNKNOWN_FIELD, message=unknown(field))


def _directory(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
