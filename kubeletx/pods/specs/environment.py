"""Builds the environment variables of a container (docs/kubelet-parity.md, rows E1 and E3).

They come from the agent's extras (see `extras`), service variables, `envFrom` and `env`, in this order; a later
variable replaces an earlier one of the same name. A value may refer to earlier variables with ``$(NAME)``. The
contents of config maps and secrets come from an `ObjectSet`. Static pods have none: for them a reference is an error
unless it is optional. No I/O except through `EnvFileReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from kubeletx import api
from kubeletx.api import ClusterService, ObjectData
from kubeletx.kube.types.core import (
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    Container,
    EnvFromSource,
    EnvVarSource,
    FileKeySelector,
    Pod,
    SecretEnvSource,
    SecretKeySelector,
)
from kubeletx.volumes.cluster_objects import ObjectSet, read
from kubeletx.volumes.pod_fields import FieldContext, containers_by_name, field_text, resource_text

from ..model.spec_errors import ContainerConfigError, path_of
from .extras import GivenExtras
from .process_size import ProcessSize

EnvFileReader: TypeAlias = Callable[[str, str], dict[str, str] | None]
"""Function that reads the variables in file `path` of a volume: (volume name, path) → variables.

None: the file does not exist. Raises ValueError or OSError.
"""

_FIX_STATIC: Final = "this pod's source gives no cluster objects: write the value, or mark it optional"

MASTER_NAMESPACE = "default"
MASTER_SERVICES = frozenset({"kubernetes"})


def build_environment(
    pod: Pod,
    container: Container,
    fields: FieldContext,
    *,
    objects: ObjectSet | None = None,
    services: Mapping[str, str] | None = None,
    read_file: EnvFileReader | None = None,
    extras: Sequence[GivenExtras] = (),
) -> dict[str, str]:
    """Build the container's variables in order, with all ``$(NAME)`` references replaced.

    `fields`: values for fieldRef and resourceFieldRef. `objects`: config maps and secrets that the container refers
    to; None if the pod's source is not a cluster. `services`: service variables. `read_file`: reads files for
    fileKeyRef; None: there are no such files. `extras`: additions of other parts of the agent. Raises InvalidPod
    (CreateContainerConfigError).
    """
    path = path_of(pod, container)
    empty_dirs = {volume.name for volume in pod.spec.volumes if volume.empty_dir is not None}
    containers = containers_by_name(pod)
    process = ProcessSize()
    variables: dict[str, str] = {}

    def add(name: str, value: str, where: str) -> None:
        process.variable(name, value, where)
        variables[name] = value

    for extra in extras:
        for name, value in extra.extras.variables.items():
            add(name, value, f"extras of provider {extra.provider!r}")
    for name, value in (services or {}).items():
        add(name, value, f"{path}.env")
    for index, source in enumerate(container.env_from):
        where = f"{path}.envFrom[{index}]"
        for name, value in _from_object(source, pod, objects, where).items():
            add(name, value, where)
    for index, variable in enumerate(container.env):
        where = f"{path}.env[{index}]"
        if variable.value_from is None:
            add(variable.name, process.expanded(variable.value or "", variables, f"{where}.value"), where)
            continue
        where = f"{where}.valueFrom"
        if variable.value_from.file_key_ref is not None:
            given = _from_file(variable.value_from.file_key_ref, empty_dirs, read_file, f"{where}.fileKeyRef")
        else:
            given = _from_source(variable.value_from, pod, container, fields, objects, containers, where)
        if given is not None:
            add(variable.name, given, where)
    return variables


def _from_file(
    reference: FileKeySelector, empty_dirs: Collection[str], read_file: EnvFileReader | None, where: str
) -> str | None:
    if reference.volume_name not in empty_dirs:
        problem = f"volume {reference.volume_name!r} is not an emptyDir of this pod"
        raise ContainerConfigError(field=f"{where}.volumeName", problem=problem)
    what = f"{reference.path!r} in volume {reference.volume_name!r}"
    try:
        values = read_file(reference.volume_name, reference.path) if read_file is not None else None
    except (ValueError, OSError) as err:
        raise ContainerConfigError(field=f"{where}.path", problem=f"{what} cannot be used: {err}") from err
    if values is None and not reference.optional:
        raise ContainerConfigError(
            field=f"{where}.path", problem=f"there is no {what}", fix="let an init container write it"
        )
    value = (values or {}).get(reference.key)
    if value is None and not reference.optional:
        raise ContainerConfigError(
            field=f"{where}.key", problem=f"couldn't find key {reference.key} in {what}"
        )
    return value


def skipped_names(container: Container, pod: Pod, objects: ObjectSet | None) -> tuple[str, ...]:
    """Return the kubelet's warning message for each envFrom object with keys that are not valid variable names.

    `build_environment` skips such keys.
    """
    skipped = []
    for source in container.env_from if objects is not None else ():
        for reference, kind, shown in (
            (source.config_map_ref, "configmap", "configMap"),
            (source.secret_ref, "secret", "secret"),
        ):
            if reference is None:
                continue
            data = _object(objects, kind, reference.name, pod, optional=True, where="")
            names = sorted((source.prefix or "") + key for key in _keys(data, kind))
            if bad := [name for name in names if not is_variable_name(name)]:
                skipped.append(
                    f"Keys [{', '.join(bad)}] from the EnvFrom {shown} {pod.namespace}/{reference.name} were "
                    "skipped since they are considered invalid environment variable names."
                )
    return tuple(skipped)


def as_variables(values: Mapping[str, str]) -> tuple[api.EnvVar, ...]:
    """Convert the variables to `api.EnvVar` values in the same order."""
    return tuple(api.EnvVar(name=name, value=value) for name, value in values.items())


def is_variable_name(name: str) -> bool:
    """Return True if the name is valid for an environment variable: printable ASCII without ``=``."""
    return bool(name) and name.isascii() and name.isprintable() and "=" not in name


def _from_object(source: EnvFromSource, pod: Pod, objects: ObjectSet | None, where: str) -> dict[str, str]:
    reference: ConfigMapEnvSource | SecretEnvSource
    if source.config_map_ref is not None:
        reference, kind, where = source.config_map_ref, "configmap", f"{where}.configMapRef"
    elif source.secret_ref is not None:
        reference, kind, where = source.secret_ref, "secret", f"{where}.secretRef"
    else:
        return {}
    data = _object(objects, kind, reference.name, pod, optional=bool(reference.optional), where=where)
    named = (((source.prefix or "") + key, key) for key in _keys(data, kind))
    return {name: _text(data, kind, key) or "" for name, key in named if is_variable_name(name)}


def _object(
    objects: ObjectSet | None, kind: str, name: str, pod: Pod, *, optional: bool, where: str
) -> ObjectData | None:
    """Return the config map or secret; None if it is missing but optional. Raises InvalidPod if it is required."""
    if objects is None:
        if optional:
            return None
        raise ContainerConfigError(
            field=where, problem=f'{kind} "{pod.namespace}/{name}" cannot be read', fix=_FIX_STATIC
        )
    data = read(objects.config_maps if kind == "configmap" else objects.secrets, name)
    if data is None and not optional:
        raise ContainerConfigError(field=where, problem=f'{kind} "{name}" not found')
    return data


def _keys(data: ObjectData | None, kind: str) -> Iterable[str]:
    """Return the keys that may become variables. The binaryData of a config map is left out."""
    if data is None:
        return ()
    return data.text if kind == "configmap" else (*data.text, *data.binary)


def _text(data: ObjectData | None, kind: str, key: str) -> str | None:
    """Return the value of one key as text; None if the key or the object is missing."""
    if data is None:
        return None
    if kind == "secret" and (content := data.binary.get(key)) is not None:
        return content.decode("utf-8", "replace")
    return data.text.get(key)


def _from_source(
    source: EnvVarSource,
    pod: Pod,
    container: Container,
    fields: FieldContext,
    objects: ObjectSet | None,
    containers: Mapping[str, Container],
    where: str,
) -> str | None:
    if source.field_ref is not None:
        return field_text(pod, source.field_ref, fields, field=f"{where}.fieldRef")
    if source.resource_field_ref is not None:
        return resource_text(
            pod,
            container,
            source.resource_field_ref,
            fields,
            field=f"{where}.resourceFieldRef",
            containers=containers,
        )
    reference: ConfigMapKeySelector | SecretKeySelector
    if source.config_map_key_ref is not None:
        reference, kind, where = source.config_map_key_ref, "configmap", f"{where}.configMapKeyRef"
    elif source.secret_key_ref is not None:
        reference, kind, where = source.secret_key_ref, "secret", f"{where}.secretKeyRef"
    else:
        raise ContainerConfigError(
            field=where,
            problem="names no source that this agent can read",
            fix="use fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef or fileKeyRef",
        )
    optional = bool(reference.optional)
    data = _object(objects, kind, reference.name, pod, optional=optional, where=where)
    text = _text(data, kind, reference.key)
    if data is not None and text is None and not optional:
        shown = {"configmap": "ConfigMap", "secret": "Secret"}[kind]
        raise ContainerConfigError(
            field=f"{where}.key",
            problem=f"couldn't find key {reference.key} in {shown} {pod.namespace}/{reference.name}",
        )
    return text


def service_variables(services: Iterable[ClusterService], namespace: str, *, links: bool) -> dict[str, str]:
    """Return the variables that describe services to a pod in `namespace` (docs/kubelet-parity.md, row E2).

        web, port 80/TCP at 10.0.0.7 ─► WEB_SERVICE_HOST, WEB_SERVICE_PORT, WEB_SERVICE_PORT_<NAME>,
                                        WEB_PORT, WEB_PORT_80_TCP, ..._PROTO, ..._PORT, ..._ADDR

    They always include service default/kubernetes. `links`: include all services in `namespace` (`enableServiceLinks`);
    one with the name ``kubernetes`` then replaces default/kubernetes. Source: kubelet, pkg/kubelet/envvars/envvars.go.
    """
    chosen: dict[str, ClusterService] = {}
    for service in sorted(services, key=lambda item: item.name):
        is_masters = service.namespace == MASTER_NAMESPACE and service.name in MASTER_SERVICES
        if links and service.namespace == namespace:
            chosen[service.name] = service
        elif is_masters:
            chosen.setdefault(service.name, service)
    return {name: value for service in chosen.values() for name, value in _service_variables(service)}


def _service_variables(service: ClusterService) -> Iterator[tuple[str, str]]:
    if not service.ports:
        return
    prefix, address = _variable_name(service.name), service.address
    yield f"{prefix}_SERVICE_HOST", address
    yield f"{prefix}_SERVICE_PORT", str(service.ports[0][1])
    for name, number, _ in service.ports:
        if name:
            yield f"{prefix}_SERVICE_PORT_{_variable_name(name)}", str(number)
    host = f"[{address}]" if ":" in address else address
    for index, (_, number, protocol) in enumerate(service.ports):
        url = f"{protocol.lower()}://{host}:{number}"
        if index == 0:
            yield f"{prefix}_PORT", url
        port = f"{prefix}_PORT_{number}_{protocol.upper()}"
        yield port, url
        yield f"{port}_PROTO", protocol.lower()
        yield f"{port}_PORT", str(number)
        yield f"{port}_ADDR", address


def _variable_name(text: str) -> str:
    return text.replace("-", "_").upper()
