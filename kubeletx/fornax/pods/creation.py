"""`PodCreation`: turns a PodCreate into a row and a pod of this node, and a row into a pod again.

The config maps and the secrets of a pod are stored apart from its spec; they are available to its containers as long as
the pod exists.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from kubeletx.api import Clock, InvalidPod, PodUid, names
from kubeletx.kube.types.core import Pod
from kubeletx.kube.validation import words

from ..stubs import fornaxcore_pb2 as pb
from ..stubs import k8s_core_v1_pb2 as core
from .machine import PodState
from .objects import CoreObjects, check_objects, objects_of
from .ports import HostPorts
from .prepare import assign_ports, host_ports, pod_id_of, prepared, unassigned_ports
from .records import PodRow


class ContentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the node for its cores.

    `identifier`: identifier of the node, namespace/name. `node_name`: name of the node in `spec.nodeName`. `host_ip`:
    address of the node for host ports. `liveness_seconds`: time in which the containers of a new pod must become ready
    once they were started.
    """

    identifier: str
    node_name: str
    host_ip: str
    liveness_seconds: float = 60.0


class PodCreation:
    """Makes the rows and the pods of cores; owns their host ports and their config maps and secrets."""

    def __init__(self, settings: ContentSettings, clock: Clock, is_port_free: Callable[[int], bool]) -> None:
        """`is_port_free`: returns True if no program of the node uses the port."""
        self.objects = CoreObjects()
        self.ports = HostPorts(is_port_free)
        self._settings = settings
        self._clock = clock

    def create(
        self,
        create: pb.PodCreate,
        *,
        is_daemon: bool,
        cluster_domain: str,
        foreign_ports: Iterable[int],
    ) -> tuple[PodRow, Pod]:
        """Make the row and the pod of a PodCreate, and occupy its host ports; `release` undoes it.

        `foreign_ports`: host ports of other pods. Raises InvalidPod for an invalid pod, and Unavailable if
        there are not enough host ports. Then nothing is occupied.
        """
        pod_id, spec = create.podIdentifier, core.Pod()
        spec.CopyFrom(create.pod)
        uid = _uid_of(pod_id, spec)
        objects = objects_of(create)
        ports = self.ports.take(pod_id, unassigned_ports(spec), {*foreign_ports, *host_ports(spec)})
        try:
            assign_ports(spec, ports, self._settings.host_ip)
            row = PodRow(
                pod_id=pod_id,
                uid=uid,
                state=PodState.CREATING,
                rests=False,
                is_daemon=is_daemon,
                spec=spec.SerializeToString(),
                config=_only_config(create).SerializeToString(),
                secret=pb.PodCreate(secrets=create.secrets).SerializeToString(),
                ports=ports,
                cluster_domain=cluster_domain,
                created_at=self._clock.now(),
            )
            pod = prepared(spec, row, self._settings.node_name)
            check_objects(pod, objects)
        except InvalidPod:
            self.ports.release(pod_id)
            raise
        self.objects.put(pod, objects)
        return replace(row, rests=names.STANDBY in pod.metadata.annotations), pod

    def restore(self, row: PodRow) -> Pod:
        """Return the pod of a stored row, and occupy its ports. Raises InvalidPod for an invalid one."""
        pod = prepared(core.Pod.FromString(row.spec), row, self._settings.node_name)
        self.objects.put(pod, objects_of(pb.PodCreate.FromString(row.config + row.secret)))
        self.ports.restore(row.pod_id, row.ports)
        return pod

    def release(self, row: PodRow) -> None:
        """Take back the host ports of a pod that is gone, and forget its objects."""
        self.ports.release(row.pod_id)
        self.objects.drop(row.uid)

    def is_made_of(self, row: PodRow, message: core.Pod) -> bool:
        """Return True if the row was made of this message."""
        again = core.Pod()
        again.CopyFrom(message)
        if unassigned_ports(again) != len(row.ports):
            return False
        assign_ports(again, row.ports, self._settings.host_ip)
        return again == core.Pod.FromString(row.spec)


def _uid_of(pod_id: str, spec: core.Pod) -> PodUid:
    """Return the pod's UID, a new one if it has none. Raises InvalidPod if it or the pod's name is invalid."""
    if pod_id_of(spec) != pod_id:
        raise InvalidPod(
            obj=f"pod {pod_id}",
            field="metadata.name",
            problem=f"is of pod {pod_id_of(spec)}",
            fix="podIdentifier is namespace/name",
        )
    uid = PodUid(spec.metadata.uid or str(uuid.uuid4()))
    # An invalid text of proto2 stays bytes.
    if problem := words.uid(uid) if isinstance(uid, str) else f"{uid!r} is not UTF-8":
        raise InvalidPod(obj=f"pod {pod_id}", field="metadata.uid", problem=problem)
    return uid


def _only_config(create: pb.PodCreate) -> pb.PodCreate:
    found = pb.PodCreate(configMaps=create.configMaps)
    if create.HasField("configMap"):
        found.configMap.CopyFrom(create.configMap)
    return found
