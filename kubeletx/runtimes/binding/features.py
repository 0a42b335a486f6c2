"""Features that a pod needs from its runtime, by their names in `kubeletx.api.FEATURES`. Pure.

A pod needs a feature if its manifest uses it and the agent cannot provide it without the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletx.api import Traits, names
from kubeletx.kube.manifests.machine_form import machine_of, says_machine
from kubeletx.kube.types.core import Container, Pod, PodSecurityContext, SecurityContext, VirtualMachine


def needs_of(pod: Pod) -> frozenset[str]:
    """Return the names of the features (`kubeletx.api.FEATURES`) that the pod needs from its runtime."""
    return frozenset(_pod_needs(pod))


def missing(pod: Pod, traits: Traits, handler: str = "") -> tuple[str, ...]:
    """Return what the pod needs and the runtime cannot provide, as texts for users; empty if nothing is missing.

    `traits`: traits of the runtime. `handler`: runtime handler that the pod would use; empty for the default.
    """
    missing_features = sorted(needs_of(pod) & set(refuses_of(traits, handler)))
    if traits.remote:
        missing_features += _remote(pod)
    if "machine" not in traits.details and (says_machine(pod) or _has_machine_notes(pod)):
        missing_features.append("virtual machines")
    if set(traits.details) == {"machine"} and pod.spec.virtual_machine is None:
        missing_features += machine_problems(pod)
    return tuple(missing_features)


def refuses_of(traits: Traits, handler: str) -> tuple[str, ...]:
    """Return the features that the runtime does not support with this handler.

    The list of the whole runtime is returned for a handler without its own list and for the default (empty) handler.
    """
    return traits.handler_refuses.get(handler, traits.refuses)


def machine_problems(pod: Pod) -> list[str]:
    """Return the reasons why a pod that is written with containers cannot run as a virtual machine; empty if it can.

    Each text names the field that prevents it.
    """
    spec = pod.spec
    if len(spec.containers) != 1 or spec.init_containers or spec.ephemeral_containers:
        return ["containers (a machine is written as exactly one, without init and ephemeral ones)"]
    container = spec.containers[0]
    given = {
        "command": container.command,
        "args": container.args,
        "workingDir": container.working_dir,
        "env": container.env,
        "envFrom": container.env_from,
    }
    return [f"spec.containers[0].{field} of a machine" for field, value in given.items() if value]


def _has_machine_notes(pod: Pod) -> bool:
    return any(key.startswith(names.VM_PREFIX) for key in pod.metadata.annotations)


def _pod_needs(pod: Pod) -> Iterator[str]:
    spec = pod.spec
    security = spec.security_context
    yield "host-network" if spec.host_network else "pod-network"
    if spec.dns_config is not None and spec.dns_config.options:
        yield "dns-options"
    if spec.host_pid:
        yield "host-pid"
    if spec.host_ipc:
        yield "host-ipc"
    if spec.host_users is False:
        yield "user-namespace"
    if any(volume.image is not None for volume in spec.volumes):
        yield "image-volumes"
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    if len(containers) > 1:
        yield "several-units"
    if security is not None:
        yield from _pod_security_needs(security)
    for container in containers:
        yield from _container_needs(container, spec.host_network)
    machine = machine_of(pod)
    if machine is not None:
        yield from _machine_needs(machine)
    if spec.nics or pod.metadata.annotations.get(names.VM_NICS):
        yield "nics"


def _pod_security_needs(security: PodSecurityContext) -> Iterator[str]:
    if security.run_as_user is not None or security.run_as_group is not None:
        yield "run-as-user"
    if security.sysctls:
        yield "sysctls"
    if security.supplemental_groups_policy == "Strict":
        yield "strict-groups"
    if security.se_linux_options is not None:
        yield "selinux"
    yield from _profiles(security.seccomp_profile, security.app_armor_profile)


def _machine_needs(machine: VirtualMachine) -> Iterator[str]:
    if machine.volume_mounts:
        yield "mounts"
    if machine.volume_devices:
        yield "block-volumes"
    if machine.key_pair_name:
        yield "key-pairs"
    if machine.trusted_image_certificate:
        yield "image-certificates"


def _container_needs(container: Container, host_network: bool) -> Iterator[str]:
    if not host_network and any(port.host_port for port in container.ports):
        yield "host-ports"
    if container.tty:
        yield "tty"
    if container.stdin:
        yield "stdin"
    if container.lifecycle is not None and container.lifecycle.stop_signal:
        yield "stop-signal"
    if container.resources.limits:
        yield "resources"
    if container.resources.claims:
        yield "devices"
    if container.volume_devices:
        yield "block-volumes"
    if container.volume_mounts:
        yield "mounts"
    for mount in container.volume_mounts:
        if mount.mount_propagation not in (None, "None"):
            yield "mount-propagation"
        if mount.recursive_read_only == "Enabled":
            yield "recursive-read-only"
    if container.security_context is not None:
        yield from _security_needs(container.security_context)


def _security_needs(security: SecurityContext) -> Iterator[str]:
    if security.privileged:
        yield "privileged"
    if security.capabilities is not None and (security.capabilities.add or security.capabilities.drop):
        yield "capabilities"
    if security.run_as_user is not None or security.run_as_group is not None:
        yield "run-as-user"
    if security.read_only_root_filesystem:
        yield "read-only-root"
    if security.se_linux_options is not None:
        yield "selinux"
    yield from _profiles(security.seccomp_profile, security.app_armor_profile)


def _profiles(seccomp: object | None, apparmor: object | None) -> Iterator[str]:
    if getattr(seccomp, "type", "Unconfined") != "Unconfined":
        yield "seccomp"
    if getattr(apparmor, "type", "Unconfined") != "Unconfined":
        yield "apparmor"


def _remote(pod: Pod) -> list[str]:
    """Return what the pod needs and a runtime on another machine lacks: the node's network and directories."""
    lacking = ["host-network on a remote runtime"] if pod.spec.host_network else []
    lacking += [f"volume {volume.name!r} of this node on a remote runtime" for volume in pod.spec.volumes]
    return lacking
