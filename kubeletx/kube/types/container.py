"""Containers of a pod. Source: core/v1 Container and the types it uses.

Fields that a manifest leaves out have these values: required strings ``""``, optional scalars None, lists
``()`` and maps ``{}``. A missing required field is not a decoding error, so that validation can report all of
them at once. Quantities are kept as written (`kubeletx.kube.text.quantity` parses them).
"""

from __future__ import annotations

from .handlers import Lifecycle, Probe
from .meta import ApiStruct
from .security import SecurityContext


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A port the container listens on.

    `name`: name by which probes refer to it. `host_port`: port of the node that leads to it; None: none.
    `container_port`: number of the port. `protocol`: TCP, UDP or SCTP; default TCP. `host_ip`: address of the node
    for `host_port`; None: all.
    """

    name: str = ""
    host_port: int | None = None
    container_port: int = 0
    protocol: str | None = None
    host_ip: str | None = None


class ConfigMapEnvSource(ApiStruct, frozen=True, kw_only=True):
    """Source of environment variables: all keys of the config map `name`. `optional`: it may be missing."""

    name: str = ""
    optional: bool | None = None


class SecretEnvSource(ApiStruct, frozen=True, kw_only=True):
    """Source of environment variables: all keys of the secret `name`. `optional`: it may be missing."""

    name: str = ""
    optional: bool | None = None


class EnvFromSource(ApiStruct, frozen=True, kw_only=True):
    """Source of environment variables: all keys of one config map or secret, each with `prefix` before its name.

    `prefix`: text before each name.
    """

    prefix: str | None = None
    config_map_ref: ConfigMapEnvSource | None = None
    secret_ref: SecretEnvSource | None = None


class ObjectFieldSelector(ApiStruct, frozen=True, kw_only=True):
    """Reference to a field of the pod itself, such as ``metadata.name`` or ``status.podIP``.

    `api_version`: version of the field's path; default v1. `field_path`: path of the field.
    """

    api_version: str | None = None
    field_path: str = ""


class ResourceFieldSelector(ApiStruct, frozen=True, kw_only=True):
    """Reference to a resource of a container, such as ``limits.cpu``. Its value is divided by `divisor` and rounded up.

    `container_name`: None: the container that has the environment variable. `resource`: the resource, with limits. or
    requests. before it. `divisor`: unit of the value, such as 1Mi; None: 1.
    """

    container_name: str | None = None
    resource: str = ""
    divisor: str | None = None


class ConfigMapKeySelector(ApiStruct, frozen=True, kw_only=True):
    """Reference to one key of the config map `name`. `optional`: config map or key may be missing."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class SecretKeySelector(ApiStruct, frozen=True, kw_only=True):
    """Reference to one key of the secret `name`. `optional`: secret or key may be missing."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class FileKeySelector(ApiStruct, frozen=True, kw_only=True):
    """Reference to the variable `key` of an environment file in a volume.

    `optional`: file or key may be missing. `volume_name`: name of the volume. `path`: path of the file in the volume.
    `key`: name of the variable in the file.
    """

    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool | None = None


class EnvVarSource(ApiStruct, frozen=True, kw_only=True):
    """Reference from which an environment variable gets its value; exactly one field is set."""

    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: ConfigMapKeySelector | None = None
    secret_key_ref: SecretKeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(ApiStruct, frozen=True, kw_only=True):
    """One environment variable: `value`, which may contain $(VAR) references, or `value_from`.

    The repr hides the value.

    `name`: name of the variable. `value`: its value. `value_from`: where the value is read from.
    """

    name: str = ""
    value: str | None = None
    value_from: EnvVarSource | None = None

    def __repr__(self) -> str:
        return f"EnvVar(name={self.name!r}, ...)"


class ContainerResizePolicy(ApiStruct, frozen=True, kw_only=True):
    """Policy for resizing one resource (cpu or memory) of a running container.

    `restart_policy`: NotRequired, or RestartContainer if a new amount needs a restart of the container.
    `resource_name`: cpu or memory.
    """

    resource_name: str = ""
    restart_policy: str = ""


class ContainerRestartRuleOnExitCodes(ApiStruct, frozen=True, kw_only=True):
    """Exit codes that a restart rule matches. `operator`: In or NotIn. `values`: the exit codes."""

    operator: str = ""
    values: tuple[int, ...] = ()


class ContainerRestartRule(ApiStruct, frozen=True, kw_only=True):
    """Action to take when a container's exit code matches `exit_codes`.

    `action`: Restart (the container) or RestartAllContainers.
    """

    action: str = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class VolumeMount(ApiStruct, frozen=True, kw_only=True):
    """Mount of one of the pod's volumes in the container.

    `name`: name of the volume. `read_only`: the container cannot write to it. `recursive_read_only`: Enabled,
    IfPossible or Disabled: whether mounts below it are read-only too. `mount_path`: where it is in the container.
    `sub_path`: mount only this file or directory of the volume. `mount_propagation`: None, HostToContainer or
    Bidirectional: whether later mounts are seen on the other side. `sub_path_expr`: as `sub_path`, with $(VAR)
    replaced.
    """

    name: str = ""
    read_only: bool = False
    recursive_read_only: str | None = None
    mount_path: str = ""
    sub_path: str | None = None
    mount_propagation: str | None = None
    sub_path_expr: str | None = None


class VolumeDevice(ApiStruct, frozen=True, kw_only=True):
    """Block volume of the pod, which the container gets as a device at `device_path`.

    `name`: name of the volume. `device_path`: path of the device in the container.
    """

    name: str = ""
    device_path: str = ""


class ResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """Reference to one of the pod's resource claims whose devices this container uses."""

    name: str = ""
    request: str | None = None


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """Limits and requests: quantities as written, by resource name.

    `claims`: device claims that the container uses. `limits`: most that it may use. `requests`: what is reserved for
    it.
    """

    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    claims: tuple[ResourceClaim, ...] = ()


class Container(ApiStruct, frozen=True, kw_only=True):
    """One container of a pod, regular or init.

    `name`: name of the container, unique in the pod. `image`: name of the image. `command`: program in place of the
    image's entry point; $(VAR) is replaced. `args`: arguments in place of those of the image; $(VAR) is replaced.
    `working_dir`: directory in which it starts; None: that of the image. `ports`: ports that it listens on.
    `env_from`: config maps and secrets whose keys become environment variables. `env`: environment variables.
    `resources`: CPU, memory and others that are reserved for it, and its limits. `resize_policy`: whether a resize of
    a resource restarts it. `restart_policy`: of an init container, Always makes it a sidecar; None: the policy of the
    pod. `restart_policy_rules`: exceptions from the policy by exit code. `volume_mounts`: volumes of the pod and
    where it sees them. `volume_devices`: block devices that it gets. `liveness_probe`: check that restarts it when it
    fails. `readiness_probe`: check that decides whether it gets traffic. `startup_probe`: check before which the
    other probes do not run. `termination_message_path`: file whose content is shown when it has ended; default
    /dev/termination-log. `termination_message_policy`: File, or FallbackToLogsOnError to show the end of the log.
    `image_pull_policy`: Always, IfNotPresent or Never; default Always for tag latest, otherwise IfNotPresent.
    `security_context`: user, capabilities and other limits of its processes. `stdin`: keep its standard input open,
    for attach. `stdin_once`: close standard input when the first client leaves. `tty`: give it a terminal.
    """

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str | None = None
    ports: tuple[ContainerPort, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str | None = None
    termination_message_policy: str | None = None
    image_pull_policy: str | None = None
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class EphemeralContainer(Container, frozen=True, kw_only=True):
    """A container added to a running pod for debugging; never restarted.

    `target_container_name`: container whose process namespace it joins; None: none.
    """

    target_container_name: str | None = None
