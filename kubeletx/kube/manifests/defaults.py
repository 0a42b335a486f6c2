"""The defaults that an API server would set, for pods that do not come from one.

`set_defaults` returns a completed copy. Values that are set are kept, so applying it twice changes nothing. Source:
kubernetes, pkg/apis/core/v1/defaults.go. The virtual machine's defaults are from the multi-runtime design (Arktos).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from ..requests import container_requests
from ..types.core import (
    Container,
    ContainerPort,
    EnvVar,
    HTTPGetAction,
    Lifecycle,
    LifecycleHandler,
    Nic,
    Pod,
    PodSecurityContext,
    PodSpec,
    Probe,
    ResourceRequirements,
    VirtualMachine,
)
from .volume_defaults import pull_policy, volume_defaults

DEFAULT_NAMESPACE: Final = "default"
DEFAULT_GRACE_SECONDS: Final = 30
_POD_LEVEL: Final = ("cpu", "memory")
TERMINATION_MESSAGE_PATH: Final = "/dev/termination-log"

T = TypeVar("T", bound=msgspec.Struct)
C = TypeVar("C", bound=Container)
V = TypeVar("V")


def set_defaults(pod: Pod) -> Pod:
    """Return the pod with every default set, including its namespace."""
    metadata = pod.metadata
    if not metadata.namespace:
        metadata = msgspec.structs.replace(metadata, namespace=DEFAULT_NAMESPACE)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec_defaults(pod.spec))


def spec_defaults(spec: PodSpec) -> PodSpec:
    """Return the spec with every default set."""
    host = spec.host_network
    spec = msgspec.structs.replace(
        spec,
        restart_policy=spec.restart_policy or "Always",
        dns_policy=spec.dns_policy or "ClusterFirst",
        termination_grace_period_seconds=_grace_seconds(spec.termination_grace_period_seconds),
        enable_service_links=_or(spec.enable_service_links, True),
        security_context=spec.security_context or PodSecurityContext(),
        scheduler_name=spec.scheduler_name or "default-scheduler",
        volumes=_each(volume_defaults, spec.volumes),
        init_containers=tuple(container_defaults(container, host) for container in spec.init_containers),
        containers=tuple(container_defaults(container, host) for container in spec.containers),
        ephemeral_containers=tuple(
            container_defaults(container, host) for container in spec.ephemeral_containers
        ),
        virtual_machine=spec.virtual_machine and _machine_defaults(spec.virtual_machine),
        nics=tuple(_nic_defaults(nic, index) for index, nic in enumerate(spec.nics)),
    )
    return msgspec.structs.replace(spec, resources=_pod_resources(spec))


def _pod_resources(spec: PodSpec) -> ResourceRequirements:
    """Return the pod-level resources with their default requests; unchanged if the pod sets no pod-level limits.

    The default request for cpu or memory is the total of the containers' requests. Without such requests, and
    for other resources, it is the pod-level limit.
    """
    if not spec.resources.limits:
        return spec.resources
    try:
        requested = container_requests(spec)
    except ValueError:  # an invalid quantity, which validation reports
        requested = {}
    together = {
        name: str(amount)
        for name, amount in requested.items()
        if name in _POD_LEVEL and name not in spec.resources.requests
    }
    requests = {**together, **spec.resources.requests}
    return _requests_from_limits(msgspec.structs.replace(spec.resources, requests=requests))


def container_defaults(container: C, host_network: bool = False) -> C:
    """Return the container with every default set.

    `host_network`: the pod uses the node's network, so the default of a host port is the container's port.
    """
    return msgspec.structs.replace(
        container,
        image_pull_policy=container.image_pull_policy or pull_policy(container.image),
        termination_message_path=container.termination_message_path or TERMINATION_MESSAGE_PATH,
        termination_message_policy=container.termination_message_policy or "File",
        resources=_requests_from_limits(container.resources),
        ports=tuple(_port_defaults(port, host_network) for port in container.ports),
        env=_each(_env_defaults, container.env),
        liveness_probe=container.liveness_probe and _probe_defaults(container.liveness_probe),
        readiness_probe=container.readiness_probe and _probe_defaults(container.readiness_probe),
        startup_probe=container.startup_probe and _probe_defaults(container.startup_probe),
        lifecycle=container.lifecycle and _lifecycle_defaults(container.lifecycle),
    )


def _requests_from_limits(resources: ResourceRequirements) -> ResourceRequirements:
    missing = {name: text for name, text in resources.limits.items() if name not in resources.requests}
    if not missing:
        return resources
    return msgspec.structs.replace(resources, requests={**resources.requests, **missing})


def _port_defaults(port: ContainerPort, host_network: bool) -> ContainerPort:
    host_port = port.host_port or (port.container_port if host_network else None)
    return msgspec.structs.replace(port, protocol=port.protocol or "TCP", host_port=host_port)


def _env_defaults(env: EnvVar) -> EnvVar:
    source = env.value_from
    if source is None or source.field_ref is None or source.field_ref.api_version:
        return env
    field_ref = msgspec.structs.replace(source.field_ref, api_version="v1")
    return msgspec.structs.replace(env, value_from=msgspec.structs.replace(source, field_ref=field_ref))


def _probe_defaults(probe: Probe) -> Probe:
    return msgspec.structs.replace(
        probe,
        timeout_seconds=probe.timeout_seconds or 1,
        period_seconds=probe.period_seconds or 10,
        success_threshold=probe.success_threshold or 1,
        failure_threshold=probe.failure_threshold or 3,
        http_get=probe.http_get and _http_defaults(probe.http_get),
    )


def _http_defaults(http: HTTPGetAction) -> HTTPGetAction:
    return msgspec.structs.replace(http, path=http.path or "/", scheme=http.scheme or "HTTP")


def _lifecycle_defaults(lifecycle: Lifecycle) -> Lifecycle:
    return msgspec.structs.replace(
        lifecycle,
        post_start=lifecycle.post_start and _hook_defaults(lifecycle.post_start),
        pre_stop=lifecycle.pre_stop and _hook_defaults(lifecycle.pre_stop),
    )


def _hook_defaults(hook: LifecycleHandler) -> LifecycleHandler:
    if hook.http_get is None:
        return hook
    return msgspec.structs.replace(hook, http_get=_http_defaults(hook.http_get))


def _machine_defaults(machine: VirtualMachine) -> VirtualMachine:
    return msgspec.structs.replace(
        machine,
        image_pull_policy=machine.image_pull_policy or "IfNotPresent",
        shutdown_behavior=machine.shutdown_behavior or "stop",
        power_spec=machine.power_spec or "Running",
        resources=_requests_from_limits(machine.resources),
    )


def _nic_defaults(nic: Nic, index: int) -> Nic:
    return nic if nic.name else msgspec.structs.replace(nic, name=f"eth{index}")


def _each(function: Callable[[T], T], items: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(function(item) for item in items)


def _grace_seconds(value: int | None) -> int:
    """Return the grace period of a pod; a negative one becomes 1."""
    if value is None:
        return DEFAULT_GRACE_SECONDS
    return 1 if value < 0 else value


def _or(value: V | None, default: V) -> V:
    return default if value is None else value
