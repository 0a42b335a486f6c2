"""Kubernetes objects as a core makes them: JSON values become messages, and pods get the core's annotations.

The protobuf form of Kubernetes differs from its JSON form in few places: quantities, times and int-or-strings are
messages, bytes are base64 in JSON, and embedded structs are fields of their own (`INLINE`).
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kubeletx.api.errors import InvalidPod
from kubeletx.fornax.stubs import fornax_session_pb2 as session_pb
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as core_pb

from . import names

INLINE: Final = ("volumeSource", "handler", "localObjectReference", "ephemeralContainerCommon")
_TIME: Final = "k8s.io.apimachinery.pkg.apis.meta.v1.Time"
_QUANTITY: Final = "k8s.io.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING: Final = "k8s.io.apimachinery.pkg.util.intstr.IntOrString"


class PodRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /pods. `node`: None: the core chooses. `spec`, `configMap`, `secrets`: JSON values of Kubernetes."""

    name: str
    namespace: str = "default"
    application: str = ""
    node: str | None = None
    spec: dict[str, Any] = {}
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    configMap: dict[str, Any] | None = None  # noqa: N815
    secrets: list[dict[str, Any]] = []

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /sessions. `id`: namespace/name. `pod`: None: an idle pod of the application, which is then reused."""

    id: str
    application: str = ""
    pod: str | None = None
    data: str = ""
    openTimeoutSeconds: int = 0  # noqa: N815
    closeGracePeriodSeconds: int = 60  # noqa: N815
    killInstanceWhenSessionClosed: bool = False  # noqa: N815


def fill(message: Message, value: Mapping[str, Any], path: str = "") -> None:
    """Set the fields of a Kubernetes message from its JSON form. Raises InvalidPod for an unknown field or wrong type."""
    fields = message.DESCRIPTOR.fields_by_name
    for key, part in value.items():
        where = f"{path}.{key}" if path else key
        field = fields.get(key)
        if part is None:
            continue
        if field is None:
            inline = next((name for name in INLINE if name in fields and _has(fields[name], key)), None)
            if inline is None:
                raise InvalidPod(
                    field=where, problem=f"{message.DESCRIPTOR.name} has no such field", fix="remove it"
                )
            fill(getattr(message, inline), {key: part}, path)
            continue
        try:
            _set(message, field, part, where)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidPod(field=where, problem=str(error), fix="write it as in a manifest") from error


def _has(field: Any, key: str) -> bool:
    return field.message_type is not None and key in field.message_type.fields_by_name


def _set(message: Message, field: Any, value: Any, path: str) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_value = field.message_type.fields_by_name["value"]
        for key, part in value.items():
            if of_value.message_type is not None:
                _set_message(target[key], part, f"{path}[{key}]")
            else:
                target[key] = _scalar(of_value, part)
    elif field.is_repeated:
        for index, part in enumerate(value):
            if field.message_type is not None:
                _set_message(target.add(), part, f"{path}[{index}]")
            else:
                target.append(_scalar(field, part))
    elif field.message_type is not None:
        target.SetInParent()
        _set_message(target, value, path)
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: Any, value: Any) -> Any:
    return base64.b64decode(value) if field.type == FieldDescriptor.TYPE_BYTES else value


def _set_message(target: Any, value: Any, path: str) -> None:
    match target.DESCRIPTOR.full_name:
        case full if full == _QUANTITY:
            target.string = str(value)
        case full if full == _TIME:
            target.seconds = int(datetime.fromisoformat(value).timestamp())
        case full if full == _INT_OR_STRING and isinstance(value, int):
            target.type, target.intVal = 0, value
        case full if full == _INT_OR_STRING:
            target.type, target.strVal = 1, value
        case _:
            fill(target, value, path)


def make_create(request: PodRequest, node: str, now: datetime) -> pb.PodCreate:
    """Make the body of a POD_CREATE: the pod has the core's label, annotations and variables. Raises InvalidPod."""
    create = pb.PodCreate(podIdentifier=request.id)
    pod = create.pod
    fill(pod.spec, request.spec, "spec")
    meta = pod.metadata
    meta.name, meta.namespace, meta.uid = request.name, request.namespace, str(uuid.uuid4())
    meta.creationTimestamp.seconds = int(now.timestamp())
    meta.labels.update({names.APPLICATION: request.application or request.id, **request.labels})
    meta.annotations.update({names.NODE: node, **request.annotations})
    pod.status.phase = "Pending"
    for container in pod.spec.containers:
        container.env.add(name=names.POD, value=request.id)
        container.env.add(name=names.APPLICATION, value=meta.labels[names.APPLICATION])
        container.env.add(name=names.SESSION_SERVICE).valueFrom.fieldRef.fieldPath = "status.hostIP"
    # A real core sends an empty ConfigMap.
    fill(create.configMap, request.configMap or {}, "configMap")
    for index, secret in enumerate(request.secrets):
        fill(create.secrets.add(), secret, f"secrets[{index}]")
    return create


def make_session(request: SessionRequest, pod: core_pb.Pod, now: datetime) -> session_pb.ApplicationSession:
    """Make the session of a SESSION_OPEN, with status Starting and the endpoints of its pod."""
    session = session_pb.ApplicationSession()
    meta, spec, status = session.metadata, session.spec, session.status
    meta.namespace, _, meta.name = request.id.partition("/")
    meta.uid = str(uuid.uuid4())
    meta.creationTimestamp.seconds = int(now.timestamp())
    meta.annotations[names.SESSION_POD] = pod_id(pod)
    spec.applicationName = request.application or pod.metadata.labels[names.APPLICATION]
    spec.sessionData = request.data
    spec.killInstanceWhenSessionClosed = request.killInstanceWhenSessionClosed
    spec.closeGracePeriodSeconds = request.closeGracePeriodSeconds
    if request.openTimeoutSeconds:
        spec.openTimeoutSeconds = request.openTimeoutSeconds
    status.sessionStatus = "Starting"
    for container in pod.spec.containers:
        for port in container.ports:
            status.accessEndPoints.add(
                protocol=port.protocol or "TCP", ipAddress=port.hostIP, port=port.hostPort
            )
    return session


def pod_id(pod: core_pb.Pod) -> str:
    """Identifier of a pod: namespace/name."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def session_id(session: session_pb.ApplicationSession) -> str:
    """Identifier of a session: namespace/name."""
    return f"{session.metadata.namespace}/{session.metadata.name}"


def live_sessions(pod: core_pb.Pod) -> set[str]:
    """Identifiers of the sessions that the pod's annotation names."""
    return {part for part in pod.metadata.annotations.get(names.POD_SESSIONS, "").split(",") if part}
