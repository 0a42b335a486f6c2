"""Columns of the table of each kind of object, and functions that make rows. Pure: the present time is an argument."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kubeletx.api import find_image_reference, names
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node
from kubeletx.node.readiness import RUNTIME_CONDITION_PREFIX
from kubeletx.server.views import ImageView, RuntimeView

from .ages import age
from .pod_status import summarise
from .printers import NONE, Column, human_bytes

POD: Final = (
    Column("NAME"),
    Column("READY"),
    Column("STATUS"),
    Column("RESTARTS"),
    Column("AGE"),
    Column("RUNTIME"),
    Column("IP", wide=True),
    Column("NODE", wide=True),
    Column("UID", wide=True),
)
RUNTIME: Final = (
    Column("NAME"),
    Column("TYPE"),
    Column("KIND"),
    Column("STATUS"),
    Column("VERSION"),
    Column("PODS"),
    Column("DEFAULT"),
    Column("SINCE"),
    Column("ENDPOINT"),
    Column("IMAGE ENDPOINT", wide=True),
    Column("ORIGIN", wide=True),
    Column("ABANDONED", wide=True),
    Column("MESSAGE", wide=True),
)
NODE: Final = (
    Column("NAME"),
    Column("STATUS"),
    Column("AGE"),
    Column("VERSION"),
    Column("RUNTIMES"),
    Column("INTERNAL-IP", wide=True),
    Column("OS-IMAGE", wide=True),
    Column("KERNEL-VERSION", wide=True),
    Column("CONTAINER-RUNTIME", wide=True),
)
IMAGE: Final = (
    Column("IMAGE"),
    Column("TAG"),
    Column("IMAGE ID"),
    Column("SIZE"),
    Column("RUNTIMES"),
    Column("PODS"),
    Column("STORE", wide=True),
    Column("DEFAULT FOR", wide=True),
    Column("DIGEST", wide=True),
    Column("PULLED BY US", wide=True),
)
EVENT: Final = (
    Column("LAST SEEN"),
    Column("TYPE"),
    Column("REASON"),
    Column("OBJECT"),
    Column("MESSAGE"),
    Column("COUNT", wide=True),
    Column("FIRST SEEN", wide=True),
)
NAMESPACE: Final = Column("NAMESPACE")
LABELS: Final = Column("LABELS")
EVENT_TYPE: Final = Column("EVENT")


def runtime_of(pod: Pod) -> str:
    """Return the name of the runtime to which the pod is assigned; empty if it has none yet."""
    return pod.metadata.annotations.get(names.BOUND_RUNTIME, "")


def pod_row(pod: Pod, now: datetime) -> list[str]:
    """Return the cells of one pod, a text for each column of `POD`."""
    summary = summarise(pod, now)
    ips = ",".join(entry.ip for entry in pod.status.pod_ips) or pod.status.pod_ip or ""
    made = pod.metadata.creation_timestamp or pod.status.start_time
    return [
        pod.name,
        summary.ready,
        summary.status,
        summary.restarts,
        age(made, now),
        runtime_of(pod),
        ips,
        pod.spec.node_name or "",
        pod.metadata.uid,
    ]


def runtime_row(runtime: RuntimeView, now: datetime) -> list[str]:
    """Return the cells of one runtime, a text for each column of `RUNTIME`.

    The status of a cordoned runtime ends with SchedulingDisabled, as kubectl shows it for nodes.
    """
    status = f"{runtime.status},SchedulingDisabled" if runtime.cordoned else runtime.status
    return [
        runtime.name,
        runtime.workload_type,
        runtime.kind,
        status,
        runtime.version,
        str(runtime.pods),
        "*" if runtime.default else "",
        age(runtime.since, now),
        runtime.url,
        runtime.image_url or "",
        runtime.origin,
        str(sum(runtime.abandoned_calls.values())),
        ": ".join(filter(None, (runtime.reason, runtime.message))),
    ]


def node_row(node: Node, now: datetime) -> list[str]:
    """Return the cells of the node, a text for each column of `NODE`."""
    conditions = {condition.type: condition for condition in node.status.conditions}
    ready = conditions.get("Ready")
    runtimes = [c.status for c in node.status.conditions if c.type.startswith(RUNTIME_CONDITION_PREFIX)]
    status = (
        {"True": "Ready", "False": "NotReady"}.get(ready.status, "Unknown")
        if ready is not None
        else "Unknown"
    )
    info = node.status.node_info
    address = next((entry.address for entry in node.status.addresses if entry.type == "InternalIP"), "")
    return [
        node.metadata.name,
        status,
        age(node.metadata.creation_timestamp, now),
        (info.kubelet_version if info else None) or "",
        f"{runtimes.count('True')}/{len(runtimes)}" if runtimes else "",
        address,
        (info.os_image if info else None) or "",
        (info.kernel_version if info else None) or "",
        (info.container_runtime_version if info else None) or "",
    ]


def image_rows(image: ImageView) -> list[list[str]]:
    """Return the rows of one image: one row for each of its tags, or one row if it has no tag.

    A row has a text for each column of `IMAGE`.
    """
    first = find_image_reference(image.digests[0]) if image.digests else None
    digest = first.digest if first is not None else ""
    rest = [
        short_id(image.id),
        human_bytes(image.size_bytes),
        ",".join(image.runtimes),
        str(len(image.used_by)) if image.used_by else "",
        image.store,
        ",".join(image.default_for),
        digest[:19],
        "yes" if image.pulled_by_us else "no",
    ]
    names_and_tags = [split_tag(tag) for tag in image.tags] or [
        (first.repository if first is not None else NONE, NONE)
    ]
    return [[name, tag, *rest] for name, tag in names_and_tags]


def split_tag(text: str) -> tuple[str, str]:
    """Split an image reference such as ``docker.io/library/busybox:1.36`` into name and tag.

    If it has no tag, the name is the whole text and the tag is ``<none>``.
    """
    found = find_image_reference(text)
    end = f":{found.tag}" if found is not None and found.tag else ""
    return (text.removesuffix(end), end[1:]) if end and text.endswith(end) else (text, NONE)


def short_id(image_id: str) -> str:
    """Shorten an image id to the first thirteen digits of its digest, as crictl does."""
    digest = image_id.partition(":")[2]
    return digest[:13] if digest else image_id


def event_row(event: Event, now: datetime) -> list[str]:
    """Return the cells of one event, a text for each column of `EVENT`."""
    last = event.last_timestamp or event.event_time or event.first_timestamp
    ref = event.involved_object
    count = event.count or 1
    seen = age(last, now)
    if count > 1 and event.first_timestamp is not None:
        seen = f"{seen} (x{count} over {age(event.first_timestamp, now)})"
    return [
        seen,
        event.type or "",
        event.reason or "",
        f"{(ref.kind or 'object').lower()}/{ref.name or ''}",
        (event.message or "").strip(),
        str(count),
        age(event.first_timestamp, now),
    ]
