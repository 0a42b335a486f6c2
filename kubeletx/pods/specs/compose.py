"""Builds the `UnitSpec` of a container or machine in one call: environment, mounts, extras and the spec itself."""

from __future__ import annotations

from kubeletx.api import Traits, UnitSpec
from kubeletx.kube.types.core import Container
from kubeletx.volumes import PreparedVolumes, VolumePreparer
from kubeletx.volumes.container_mounts import ContainerMounts

from .extras import extra_mounts
from .hosts import hosts_text
from .inputs import UnitInputs
from .unit import build_unit_spec, unit_environment

_UNKNOWN = Traits(refuses=("recursive-read-only",))
"""Traits assumed for a runtime that has never answered: all features but one that old runtimes silently ignore."""


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
    found, takes_mounts = ContainerMounts(), "mounts" not in able.refuses
    if takes_mounts:
        found = await volumes.mounts_for(
            pod,
            container,
            prepared,
            attempt=inputs.attempt,
            environment=environment,
            hosts_text=hosts,
            recursive_read_only=node.recursive_read_only and "recursive-read-only" not in able.refuses,
        )
    extras = extra_mounts(
        pod, container, found, inputs.extras, runtime=inputs.runtime_name, takes_mounts=takes_mounts
    )
    return build_unit_spec(
        inputs, mounts=(*found.mounts, *extras), devices=found.devices, environment=environment
    )
