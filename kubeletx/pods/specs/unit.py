"""Converts a container or virtual machine of a Pod to its `UnitSpec`.

The caller provides what is not in the Pod: the image status, the mounts that `kubeletx.volumes` prepared, the pod's
addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kubeletx.api import (
    Device,
    IdMapping,
    ImageSpec,
    ImageStatus,
    Mount,
    Process,
    Traits,
    UnitSpec,
)
from kubeletx.kube.types.core import Container, Pod, PodUnit
from kubeletx.volumes import PreparedVolumes, VolumePreparer
from kubeletx.volumes.cluster_objects import ObjectSet
from kubeletx.volumes.container_mounts import ContainerMounts
from kubeletx.volumes.env_file import EnvFiles

from ..logs.format import log_path
from ..model.node_context import NodeContext
from ..model.spec_errors import path_of
from ..workloads.machine.spec import build_machine
from .environment import as_variables, build_environment
from .extras import GivenExtras, extra_annotations, extra_mounts
from .hosts import hosts_text
from .inputs import UnitInputs
from .labels import unit_annotations, unit_labels
from .process_size import ProcessSize
from .resources import unit_resources
from .security import process_security

_UNKNOWN = Traits(refuses=("recursive-read-only",))
"""Traits assumed for a runtime that has never answered: all features except recursive-read-only.

Old runtimes silently ignore that one.
"""


async def compose_unit(inputs: UnitInputs, volumes: VolumePreparer, prepared: PreparedVolumes) -> UnitSpec:
    """Build the spec of a unit to create, and prepare on the node the files and mounts that it needs.

    `prepared`: the pod's volumes, already prepared. If the runtime does not support mounts, the spec has none;
    then extras with mounts raise InvalidPod. Other errors: see `build_unit_spec` and `VolumePreparer.mounts_for`.
    """
    pod, container, node = inputs.pod, inputs.container, inputs.node
    able = inputs.traits or _UNKNOWN
    environment: dict[str, str] = {}
    hosts = None
    if isinstance(container, Container):
        environment = unit_environment(
            pod,
            container,
            node,
            pod_ips=inputs.pod_ips,
            objects=inputs.objects,
            services=inputs.services,
            extras=inputs.extras,
        )
        hosts = hosts_text(pod, node, inputs.pod_ips)
    mounts, takes_mounts = ContainerMounts(), "mounts" not in able.refuses
    if takes_mounts:
        mounts = await volumes.mounts_for(
            pod,
            container,
            prepared,
            attempt=inputs.attempt,
            environment=environment,
            hosts_text=hosts,
            recursive_read_only=node.recursive_read_only and "recursive-read-only" not in able.refuses,
        )
    extras = extra_mounts(
        pod, container, mounts, inputs.extras, runtime=inputs.runtime_name, takes_mounts=takes_mounts
    )
    return build_unit_spec(
        inputs, mounts=(*mounts.mounts, *extras), devices=mounts.devices, environment=environment
    )


def build_unit_spec(
    inputs: UnitInputs,
    *,
    mounts: Sequence[Mount] = (),
    devices: Sequence[Device] = (),
    environment: Mapping[str, str] | None = None,
) -> UnitSpec:
    """Build the spec of the container or machine to create. Raises InvalidPod (CreateContainerConfigError).

    `environment`: result of `unit_environment` if the caller has it; None: it is computed.
    """
    pod, container, context = inputs.pod, inputs.container, inputs.node
    attempt, image, log_mode = inputs.attempt, inputs.image, inputs.log_mode
    if not isinstance(container, Container):
        return UnitSpec(
            name=container.name,
            attempt=attempt,
            image=_image(container, image),
            detail=build_machine(pod, container),
            resources=unit_resources(pod, container, context),
            mounts=tuple(mounts),
            log_path=log_path(container.name, attempt, log_mode),
            labels=unit_labels(pod, container, context, inputs.runtime_name),
            annotations={**extra_annotations(inputs.extras), **unit_annotations(pod, container, attempt)},
        )
    values = environment
    if values is None:
        values = unit_environment(
            pod,
            container,
            context,
            pod_ips=inputs.pod_ips,
            objects=inputs.objects,
            services=inputs.services,
            extras=inputs.extras,
        )
    security = process_security(
        pod,
        container,
        context,
        image=image,
        target_unit=inputs.target_unit,
        user_mappings=inputs.user_mappings,
    )
    lifecycle = container.lifecycle
    path, process = path_of(pod, container), ProcessSize(values)
    return UnitSpec(
        name=container.name,
        attempt=attempt,
        image=_image(container, image),
        detail=Process(
            command=process.words(container.command, values, f"{path}.command"),
            args=process.words(container.args, values, f"{path}.args"),
            working_dir=container.working_dir or "",
            stdin=container.stdin,
            stdin_once=container.stdin_once,
            tty=container.tty,
            stop_signal=(lifecycle.stop_signal or "") if lifecycle is not None else "",
            devices=tuple(devices),
            security=security,
        ),
        environment=as_variables(values),
        resources=unit_resources(pod, container, context),
        mounts=_mapped(mounts, inputs.user_mappings),
        log_path=log_path(container.name, attempt, log_mode),
        labels=unit_labels(pod, container, context, inputs.runtime_name),
        annotations={**extra_annotations(inputs.extras), **unit_annotations(pod, container, attempt)},
    )


def unit_environment(
    pod: Pod,
    container: Container,
    context: NodeContext,
    *,
    pod_ips: Sequence[str] = (),
    objects: ObjectSet | None = None,
    services: Mapping[str, str] | None = None,
    extras: Sequence[GivenExtras] = (),
) -> dict[str, str]:
    """Build the container's environment variables; see `build_environment` for the parameters and errors.

    Commands and subPathExpr refer to these variables. `pod_ips`: the sandbox's addresses; empty for host network.
    """
    ips = tuple(pod_ips) or (context.host_ips if pod.spec.host_network else ())

    files = EnvFiles(context.root_dir, pod.uid)
    return build_environment(
        pod,
        container,
        context.fields(ips),
        objects=objects,
        services=services,
        read_file=files.read,
        extras=extras,
    )


def _mapped(mounts: Sequence[Mount], mappings: tuple[IdMapping, ...] | None) -> tuple[Mount, ...]:
    """Add the ID mappings to the mounts, so that files have the same owner IDs in the user namespace as on the node."""
    if mappings is None:
        return tuple(mounts)
    return tuple(
        mount if mount.image else replace(mount, user_mappings=mappings, group_mappings=mappings)
        for mount in mounts
    )


def _image(container: PodUnit, image: ImageStatus | None) -> ImageSpec:
    return ImageSpec(requested=container.image, ref=image.ref if image is not None else "")
