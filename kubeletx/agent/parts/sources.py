"""Which pod sources this agent has, and their tasks."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection
from pathlib import Path

import msgspec
import structlog

from kubeletx.api import Clock, EventSink, ObjectRef
from kubeletx.api.names import Event
from kubeletx.kube.manifests.unknown_fields import unknown
from kubeletx.kube.types.core import Pod
from kubeletx.pods.manager import PodManager
from kubeletx.pods.model.sources import APPLIED, FILE, URL
from kubeletx.static.applied import AppliedSource
from kubeletx.static.file import FileSource
from kubeletx.static.manifest import ManifestReader
from kubeletx.static.url import UrlSource

from ..config.tree import AgentConfig
from ..host.source_health import SourceHealth
from ..host.supervise import supervise

log = structlog.get_logger(__name__)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """All sources. `applied` is also written by the admin server."""

    applied: AppliedSource
    health: SourceHealth
    file: FileSource | None = None
    url: UrlSource | None = None

    @property
    def names(self) -> frozenset[str]:
        """Names of the sources there are."""
        named = {APPLIED: self.applied, FILE: self.file, URL: self.url}
        return frozenset(name for name, source in named.items() if source is not None)

    def start(self, group: asyncio.TaskGroup, clock: Clock) -> None:
        """Run each in a task of its own; one that fails with a bug starts again."""
        runs = {APPLIED: self.applied.start}
        if self.file is not None:
            runs[FILE] = self.file.run
        if self.url is not None:
            runs["url"] = self.url.run
        for name, run in runs.items():
            task, on_failure = f"source-{name}", functools.partial(self.health.failed, name)
            group.create_task(supervise(task, run, clock, on_failure), name=task)


def make_sources(
    config: AgentConfig,
    manager: PodManager,
    clock: Clock,
    node_name: str,
    workload_types: Collection[str],
    health: SourceHealth,
    events: EventSink,
) -> Sources:
    """The sources that the configuration names, and the applied one, which is always there."""
    settings = config.sources
    on_unknown = functools.partial(_warn, events)
    reader = ManifestReader(node_name=node_name, workload_types=workload_types)
    file = url = None
    if settings.pod_manifest_path is not None:
        file = FileSource(
            path=settings.pod_manifest_path,
            sink=manager,
            reader=reader,
            clock=clock,
            check_seconds=settings.file_check_seconds,
            memory=_directory(config.root_dir / "manifests"),
            on_unknown=on_unknown,
        )
    if settings.manifest_url is not None:
        url = UrlSource(
            url=settings.manifest_url,
            headers=settings.manifest_url_headers,
            sink=manager,
            reader=reader,
            clock=clock,
            check_seconds=settings.http_check_seconds,
            has_earlier_pods=lambda: manager.has_unclaimed(URL),
            on_unknown=on_unknown,
        )
    applied = AppliedSource(
        directory=_directory(config.applied_directory),
        sink=manager,
        node_name=node_name,
        clock=clock,
        workload_types=workload_types,
        is_bound=manager.is_bound,
    )
    return Sources(applied=applied, health=health, file=file, url=url)


def _warn(events: EventSink, pod: Pod, fields: tuple[str, ...]) -> None:
    """One event for each field of a manifest that has no effect."""
    log.warning("Ignored unknown fields of a manifest", pod=pod.ref, fields=fields)
    ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(pod.uid))
    for field in fields:
        events.record(ref, type="Warning", reason=Event.UNKNOWN_FIELD, message=unknown(field))


def _directory(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
