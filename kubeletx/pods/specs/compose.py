"""Builds a container's `UnitSpec` in one call: environment, mounts, then the spec, with extras (see `extras`)."""

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
"""Traits of a runtime that was never reached: assume all features except those an old one silently ignores."""


async def compose_unit(inputs: UnitInputs, volumes: VolumePreparer, prepared: PreparedVolumes) -> UnitSpec:
    """Build the spec of the unit to create; prepare the files and mounts that it needs on the node.

    For a runtime that takes no mounts the spec has none, and extras with mounts raise InvalidPod. Raises also what
    `build_unit_spec` and `VolumePreparer.mounts_for` raise.
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
