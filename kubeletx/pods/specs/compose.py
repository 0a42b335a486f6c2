"""One call from container to `UnitSpec`: environment, then mounts, then the spec.

The pure parts and the volumes meet here, so that nobody else needs to know both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeletx.api import IdMapping, ImageStatus, LogMode, RuntimeName, Traits, UnitId, UnitSpec
from kubeletx.kube.types.core import Container, Pod, VirtualMachine
from kubeletx.volumes import ObjectSet, PreparedVolumes, VolumePreparer
from kubeletx.volumes.container_mounts import ContainerMounts

from ..model.node_context import NodeContext
from .hosts import hosts_text
from .unit import build_unit_spec, unit_environment

_UNKNOWN = Traits(refuses=("recursive-read-only",))
"""A runtime that was never reached: it may do all but what an old one would silently leave out."""


async def compose_unit(
    pod: Pod,
    container: Container | VirtualMachine,
    context: NodeContext,
    *,
    volumes: VolumePreparer,
    prepared: PreparedVolumes,
    attempt: int,
    image: ImageStatus | None,
    runtime_name: RuntimeName,
    traits: Traits | None = None,
    pod_ips: Sequence[str] = (),
    target_unit: UnitId | None = None,
    user_mappings: tuple[IdMapping, ...] | None = None,
    objects: ObjectSet | None = None,
    services: Mapping[str, str] | None = None,
) -> UnitSpec:
    """The unit to create, with every file and mount it needs made ready on the node.

    `traits`: of the runtime; one that refuses mounts gets none. `pod_ips`: the sandbox's addresses; empty for
    host network. `objects`: what the environment refers to; None when the pod's source has no cluster behind it.
    `services`: service variables. Raises what `build_unit_spec` and `VolumePreparer.mounts_for` raise.
    """
    able = traits or _UNKNOWN
    environment: dict[str, str] = {}
    hosts = None
    if isinstance(container, Container):
        environment = unit_environment(
            pod, container, context, pod_ips=pod_ips, objects=objects, services=services
        )
        hosts = hosts_text(pod, context, pod_ips)
    found = ContainerMounts()
    if "mounts" not in able.refuses:
        found = await volumes.mounts_for(
            pod,
            container,
            prepared,
            attempt=attempt,
            environment=environment,
            hosts_text=hosts,
            recursive_read_only=context.recursive_read_only and "recursive-read-only" not in able.refuses,
        )
    return build_unit_spec(
        pod,
        container,
        context,
        attempt=attempt,
        image=image,
        runtime_name=runtime_name,
        mounts=found.mounts,
        devices=found.devices,
        pod_ips=pod_ips,
        target_unit=target_unit,
        environment=environment,
        user_mappings=user_mappings,
        log_mode=able.log_mode if traits is not None else LogMode.FILE,
    )
