"""Columns of the table of each kind of object. Pure: the present time is an argument of each cell."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeletx.api import find_image_reference, names
from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.text.human import age, human_bytes

from .printers import NONE, Column

if TYPE_CHECKING:
    from kubeletx.kube.types.core import Pod
    from kubeletx.kube.types.event import Event
    from kubeletx.kube.types.node import Node
    from kubeletx.server.views import ImageView, RuntimeView, VolumeView


def runtime_of(pod: Pod) -> str:
    """Return the name of the runtime to which the pod is assigned; empty if it has none yet."""
    return pod.metadata.annotations.get(names.BOUND_RUNTIME, "")


def _pod_age(pod: Pod, now: datetime) -> str:
    return age(pod.metadata.creation_timestamp or pod.status.start_time, now)


POD: Final = (
    Column("NAME", lambda pod, _: pod.name),
    Column("READY", lambda pod, now: summarise(pod, now).ready),
    Column("STATUS", lambda pod, now: summarise(pod, now).status, state=True),
    Column("RESTARTS", lambda pod, now: summarise(pod, now).restarts),
    Column("AGE", _pod_age, priority=1),
    Column("RUNTIME", lambda pod, _: runtime_of(pod), priority=2),
    Column(
        "IP",
        lambda pod, _: ",".join(ip.ip for ip in pod.status.pod_ips) or pod.status.pod_ip or "",
        wide=True,
    ),
    Column("NODE", lambda pod, _: pod.spec.node_name or "", wide=True),
)


def _runtime_status(runtime: RuntimeView, _: datetime) -> str:
    """Return the status; for a cordoned runtime it ends with SchedulingDisabled, as kubectl shows it for nodes."""
    return f"{runtime.status},SchedulingDisabled" if runtime.cordoned else runtime.status


RUNTIME: Final = (
    Column("NAME", lambda runtime, _: runtime.name),
    Column("TYPE", lambda runtime, _: runtime.workload_type),
    Column("KIND", lambda runtime, _: runtime.kind, priority=3),
    Column("STATUS", _runtime_status, state=True),
    Column("VERSION", lambda runtime, _: runtime.version, priority=2),
    Column("PODS", lambda runtime, _: str(runtime.pods)),
    Column("DEFAULT", lambda runtime, _: "*" if runtime.default else ""),
    Column("SINCE", lambda runtime, now: age(runtime.since, now), priority=1),
    Column("ENDPOINT", lambda runtime, _: runtime.url, priority=4),
    Column("IMAGE ENDPOINT", lambda runtime, _: runtime.image_url or "", wide=True),
    Column("ORIGIN", lambda runtime, _: runtime.origin, wide=True),
    Column("ABANDONED", lambda runtime, _: str(sum(runtime.abandoned_calls.values())), wide=True),
    Column(
        "MESSAGE", lambda runtime, _: ": ".join(filter(None, (runtime.reason, runtime.message))), wide=True
    ),
)


def _node_status(node: Node, _: datetime) -> str:
    ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "")
    status = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return f"{status},SchedulingDisabled" if node.spec.unschedulable else status


def _ready_runtimes(node: Node, _: datetime) -> str:
    statuses = [c.status for c in node.status.conditions if c.type.startswith(names.RUNTIME_CONDITION_PREFIX)]
    return f"{statuses.count('True')}/{len(statuses)}" if statuses else ""


def _node_info(title: str, field: str, *, wide: bool = False) -> Column:
    return Column(title, lambda node, _: getattr(node.status.node_info, field, "") or "", wide)


NODE: Final = (
    Column("NAME", lambda node, _: node.metadata.name),
    Column("STATUS", _node_status, state=True),
    Column("AGE", lambda node, now: age(node.metadata.creation_timestamp, now)),
    _node_info("VERSION", "kubelet_version"),
    Column("RUNTIMES", _ready_runtimes),
    Column(
        "INTERNAL-IP",
        lambda node, _: next(
            (address.address for address in node.status.addresses if address.type == "InternalIP"), ""
        ),
        wide=True,
    ),
    _node_info("OS-IMAGE", "os_image", wide=True),
    _node_info("KERNEL-VERSION", "kernel_version", wide=True),
    _node_info("CONTAINER-RUNTIME", "container_runtime_version", wide=True),
)


class TaggedImage(NamedTuple):
    """One line of the table of images: an image with one of its tags."""

    image: ImageView
    name: str
    tag: str


def tagged(image: ImageView) -> Sequence[TaggedImage]:
    """Return the lines of one image: one for each of its tags, or one if it has no tag."""
    pairs = [split_tag(tag) for tag in image.tags]
    if not pairs:
        first = find_image_reference(image.digests[0]) if image.digests else None
        pairs = [(first.repository if first is not None else NONE, NONE)]
    return [TaggedImage(image, name, tag) for name, tag in pairs]


def _digest(line: TaggedImage, _: datetime) -> str:
    first = find_image_reference(line.image.digests[0]) if line.image.digests else None
    return first.digest[:19] if first is not None else ""


IMAGE: Final = (
    Column("IMAGE", lambda line, _: line.name),
    Column("TAG", lambda line, _: line.tag),
    Column("IMAGE ID", lambda line, _: short_id(line.image.id), priority=1),
    Column("SIZE", lambda line, _: human_bytes(line.image.size_bytes)),
    Column("RUNTIMES", lambda line, _: ",".join(line.image.runtimes), priority=2),
    Column("PODS", lambda line, _: str(len(line.image.used_by)) if line.image.used_by else ""),
    Column("STORE", lambda line, _: line.image.store, wide=True),
    Column("DEFAULT FOR", lambda line, _: ",".join(line.image.default_for), wide=True),
    Column("DIGEST", _digest, wide=True),
    Column("PULLED BY US", lambda line, _: "yes" if line.image.pulled_by_us else "no", wide=True),
)


def split_tag(text: str) -> tuple[str, str]:
    """Split an image reference such as ``docker.io/library/busybox:1.36`` into name and tag.

    If it has no tag, the name is the whole text and the tag is ``<none>``.
    """
    reference = find_image_reference(text)
    end = f":{reference.tag}" if reference is not None and reference.tag else ""
    return (text.removesuffix(end), end[1:]) if end and text.endswith(end) else (text, NONE)


def short_id(image_id: str) -> str:
    """Shorten an image id to the first thirteen digits of its digest, as crictl does."""
    digest = image_id.partition(":")[2]
    return digest[:13] if digest else image_id


def volume_name(volume: VolumeView) -> str:
    """Return the name under which a volume is shown and selected: ``POD/VOLUME``."""
    return f"{volume.pod or volume.pod_uid}/{volume.name}"


def size(amount: int | None) -> str:
    """Return a size for people; empty if it is unknown."""
    return human_bytes(amount) if amount is not None else ""


VOLUME: Final = (
    Column("NAME", lambda volume, _: volume_name(volume)),
    Column("KIND", lambda volume, _: volume.kind, priority=3),
    Column(
        "STATE", lambda volume, _: f"{volume.state},Failed" if volume.message else volume.state, state=True
    ),
    Column("PERSISTENT VOLUME", lambda volume, _: volume.persistent_volume, priority=2),
    Column("CAPACITY", lambda volume, _: size(volume.capacity_bytes)),
    Column("USED", lambda volume, _: size(volume.used_bytes)),
    Column("SINCE", lambda volume, now: age(volume.since, now) if volume.since is not None else ""),
    Column("CLAIM", lambda volume, _: volume.claim, wide=True),
    Column("DRIVER", lambda volume, _: volume.driver, wide=True),
    Column("DEVICE", lambda volume, _: volume.device, wide=True),
    Column("PATH", lambda volume, _: volume.path, wide=True),
    Column("MESSAGE", lambda volume, _: volume.message, wide=True),
)


SESSION: Final = (
    Column("NAME", lambda session, _: session.name),
    Column(
        "STATE", lambda session, _: f"{session.state},Silent" if session.silent else session.state, state=True
    ),
    Column("INSTANCE", lambda session, _: session.pod),
    Column("CLIENTS", lambda session, _: str(len(session.clients))),
    Column("AGE", lambda session, now: age(session.created_at, now)),
    Column("HEARTBEAT", lambda session, now: age(session.heartbeat_at, now) if session.heartbeat_at else ""),
    Column("REASON", lambda session, _: session.reason, priority=1),
    Column("APPLICATION", lambda session, _: session.application, wide=True),
    Column("ORIGIN", lambda session, _: session.origin, wide=True),
    Column("NAMESPACE", lambda session, _: session.namespace, wide=True),
    Column("CLIENT NAMES", lambda session, _: ",".join(one.name for one in session.clients), wide=True),
    Column("MESSAGE", lambda session, _: session.message, wide=True),
)


def last_seen(event: Event, now: datetime) -> str:
    """Return the age of the event and, if it occurred repeatedly, how often and since when."""
    seen = age(event.last_timestamp or event.event_time or event.first_timestamp, now)
    if (event.count or 1) > 1 and event.first_timestamp is not None:
        seen = f"{seen} (x{event.count} over {age(event.first_timestamp, now)})"
    return seen


def _object(event: Event, _: datetime) -> str:
    ref = event.involved_object
    return f"{(ref.kind or 'object').lower()}/{ref.name or ''}"


EVENT: Final = (
    Column("LAST SEEN", last_seen),
    Column("TYPE", lambda event, _: event.type or "", priority=1, state=True),
    Column("REASON", lambda event, _: event.reason or ""),
    Column("OBJECT", _object),
    Column("MESSAGE", lambda event, _: (event.message or "").strip(), long=True),
    Column("COUNT", lambda event, _: str(event.count or 1), wide=True),
    Column("FIRST SEEN", lambda event, now: age(event.first_timestamp, now), wide=True),
)
