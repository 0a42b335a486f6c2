"""Pods of a core, as this node runs them: identity, annotations, ports and checks of a PodCreate. Pure.

    PodCreate.pod ─► host ports are written into it ─► `prepared` ─► Pod for the pod manager
                                                   └─► kept, and sent back with the status written into it

The message itself is kept unchanged but for the host ports, so that fields which this program does not know reach the
core again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kubeletx.api import InvalidPod, PodUid, names
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.types.core import Pod, PodDNSConfig, PodStatus
from kubeletx.kube.validation import validate_pod, words
from kubeletx.pods.model.sources import FORNAX
from kubeletx.volumes.references import claims_of, tokens_of

from .. import names as wire_names
from ..convert import pod_of
from ..stubs import fornaxcore_pb2 as pb
from ..stubs import k8s_core_v1_pb2 as core
from .records import PodRow


def pod_id_of(message: core.Pod) -> str:
    """Return the identifier of a pod, namespace/name."""
    return f"{message.metadata.namespace}/{message.metadata.name}"


def uid_of(create: pb.PodCreate) -> PodUid:
    """Return the pod's UID, a new one if it has none. Raises InvalidPod if it or the pod's name is invalid."""
    origin, name = f"pod {create.podIdentifier}", pod_id_of(create.pod)
    if name != create.podIdentifier:
        fix = "podIdentifier is namespace/name"
        raise InvalidPod(obj=origin, field="metadata.name", problem=f"is of pod {name}", fix=fix)
    uid = PodUid(create.pod.metadata.uid or str(uuid.uuid4()))
    # An invalid text of proto2 stays bytes.
    if problem := words.uid(uid) if isinstance(uid, str) else f"{uid!r} is not UTF-8":
        raise InvalidPod(obj=origin, field="metadata.uid", problem=problem)
    return uid


def unassigned_ports(message: core.Pod) -> int:
    """Return the number of container ports that need a host port."""
    if message.spec.hostNetwork:
        return 0
    return sum(1 for port in _ports(message) if not port.hostPort)


def host_ports(message: core.Pod) -> Iterator[int]:
    """Yield the host ports that the pod came with, or was given."""
    return (port.hostPort for port in _ports(message) if port.hostPort)


def assign_ports(message: core.Pod, ports: Sequence[int], host_ip: str) -> None:
    """Write host port and host address into every container port.

    `ports`: host ports for the container ports that have none, in order; a pod with the node's network uses its
    container ports. The address is also used for ports that came with a host port, but without an address.
    """
    given = iter(ports)
    for port in _ports(message):
        if not port.hostPort:
            port.hostPort = port.containerPort if message.spec.hostNetwork else next(given)
        if not port.hostIP:
            port.hostIP = host_ip


def _ports(message: core.Pod) -> Iterator[core.ContainerPort]:
    for container in (*message.spec.initContainers, *message.spec.containers):
        yield from container.ports


def prepared(message: core.Pod, row: PodRow, node_name: str) -> Pod:
    """Return the pod of a row as this node runs it. Raises InvalidPod for the first problem.

    Annotations of the core choose standby and sessions, unless the pod has the annotations of kubeletx. Daemon pods
    never stand by.
    """
    origin = f"pod {pod_id_of(message)}"
    pod = set_defaults(pod_of(message, origin))
    metadata = replace(
        pod.metadata,
        uid=row.uid,
        resource_version="",
        generation=None,
        creation_timestamp=pod.metadata.creation_timestamp or row.created_at,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
        annotations=_annotations(pod.metadata.annotations, is_daemon=row.is_daemon),
    )
    spec = replace(pod.spec, node_name=node_name)
    pod = replace(pod, metadata=metadata, spec=spec, status=PodStatus())
    problems = validate_pod(_without_core_labels(pod), origin)
    if problems:
        raise problems[0]
    _check_references(pod)
    return _with_domain(pod, row.cluster_domain)


def _annotations(notes: dict[str, str], *, is_daemon: bool) -> dict[str, str]:
    found = {**notes, names.CONFIG_SOURCE: FORNAX}
    rest = wire_names.REST_STATES.get(notes.get(wire_names.HIBERNATE_POD, ""))
    if rest is not None:
        found.setdefault(names.STANDBY, rest)
    if wire_names.SESSION_SERVICE_POD in notes:
        found.setdefault(names.SESSIONS, "true")
    if is_daemon:
        found.pop(names.STANDBY, None)
    return found


def _without_core_labels(pod: Pod) -> Pod:
    """Return the pod without labels of the protocol: their values, such as namespace/name, are no valid label values."""
    labels = {key: value for key, value in pod.metadata.labels.items() if not key.endswith(wire_names.SUFFIX)}
    return replace(pod, metadata=replace(pod.metadata, labels=labels))


def _check_references(pod: Pod) -> None:
    """Raise InvalidPod if the pod refers to claims or tokens, which only an API server provides."""
    for kind, found in (("persistentVolumeClaim", claims_of(pod)), ("serviceAccountToken", tokens_of(pod))):
        if list(found):
            raise InvalidPod(
                obj=pod.ref,
                field="spec.volumes",
                problem=f"has a volume of kind {kind}",
                fix="use config maps and secrets: a FornaxCore sends no other objects",
            )


def _with_domain(pod: Pod, domain: str) -> Pod:
    """Return the pod with the search domains of the cluster, which its core and not the node's settings name."""
    if (
        not domain
        or pod.spec.host_network
        or pod.spec.dns_policy not in ("ClusterFirst", "ClusterFirstWithHostNet")
    ):
        return pod
    config = pod.spec.dns_config or PodDNSConfig()
    searches = (f"{pod.namespace}.svc.{domain}", f"svc.{domain}", domain)
    config = replace(config, searches=tuple(dict.fromkeys((*config.searches, *searches))))
    return replace(pod, spec=replace(pod.spec, dns_config=config))


def required_objects(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the config maps and secrets that the pod's volumes need; optional ones are left out."""
    for volume in pod.spec.volumes:
        if volume.config_map is not None and not volume.config_map.optional:
            yield "ConfigMap", volume.config_map.name
        if volume.secret is not None and not volume.secret.optional:
            yield "Secret", volume.secret.secret_name or ""
        for source in volume.projected.sources if volume.projected is not None else ():
            if source.config_map is not None and not source.config_map.optional:
                yield "ConfigMap", source.config_map.name
            if source.secret is not None and not source.secret.optional:
                yield "Secret", source.secret.name
