"""Output of ``describe node``: conditions, resources, runtimes, pods and the node's events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.text.human import age
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node
from kubeletx.server.views import RuntimeView

from ..output.columns import RUNTIME, runtime_of
from ..output.printers import shown
from .pod import add_events
from .sheet import Sheet


def describe_node(
    node: Node, runtimes: Sequence[RuntimeView], pods: Sequence[Pod], events: Sequence[Event], now: datetime
) -> list[str]:
    """Return the lines that ``kubeletx describe node`` prints. `pods`: all pods of the node."""
    sheet = Sheet()
    status = node.status
    sheet.add("Name", node.metadata.name)
    sheet.add_map("Labels", node.metadata.labels).add_map("Annotations", node.metadata.annotations, ": ")
    sheet.add("Created", age(node.metadata.creation_timestamp, now))
    conditions = [
        [c.type, c.status, age(c.last_transition_time, now), c.reason or "", c.message or ""]
        for c in status.conditions
    ]
    sheet.table("Conditions", ("Type", "Status", "Since", "Reason", "Message"), conditions)
    sheet.add("Addresses", [f"{entry.type}: {entry.address}" for entry in status.addresses])
    sheet.add_map("Capacity", status.capacity, ": ").add_map("Allocatable", status.allocatable, ": ")
    info = status.node_info
    if info is not None:
        section = sheet.nest("System Info")
        section.add("Machine ID", info.machine_id).add("Boot ID", info.boot_id)
        section.add("Kernel Version", info.kernel_version).add("OS Image", info.os_image)
        section.add("Architecture", info.architecture).add(
            "Container Runtime", info.container_runtime_version
        )
        section.add("Agent Version", info.kubelet_version)
    columns = shown(RUNTIME)
    rows = [[column.cell(item, now) for column in columns] for item in runtimes]
    sheet.table("Runtimes", [column.title.title() for column in columns], rows)
    bound = [
        [
            pod.namespace,
            pod.name,
            summarise(pod, now).status,
            runtime_of(pod),
            age(pod.status.start_time, now),
        ]
        for pod in pods
    ]
    sheet.table(f"Pods ({len(bound)} in total)", ("Namespace", "Name", "Status", "Runtime", "Age"), bound)
    add_events(sheet, events, now)
    return sheet.lines()
