"""Output of ``describe runtime``: its state, capabilities, image store, pods and events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kubeletx.kube.text.human import age, human_bytes
from kubeletx.kube.types.event import Event
from kubeletx.server.views import RuntimeDetail

from ..output.words import process_text
from .pod import add_events
from .sheet import Sheet


def describe_runtime(detail: RuntimeDetail, events: Sequence[Event], now: datetime) -> list[str]:
    """Return the lines that ``kubeletx describe runtime`` prints for one runtime. `events`: the events about it."""
    sheet, runtime = Sheet(), detail.runtime
    sheet.add("Name", runtime.name).add("Type", runtime.workload_type).add("Kind", runtime.kind)
    sheet.add("Endpoint", runtime.url).add("Image Endpoint", runtime.image_url or "the runtime itself")
    sheet.add("Origin", runtime.origin)
    sheet.add("Status", f"{runtime.status} since {age(runtime.since, now)}")
    sheet.add_if("Reason", runtime.reason).add_if("Message", runtime.message)
    abandoned = ", ".join(f"{method} {count}" for method, count in sorted(runtime.abandoned_calls.items()))
    sheet.add_if("Abandoned Calls", abandoned)
    sheet.add("Default", "yes" if runtime.default else "no").add(
        "Cordoned", "yes" if runtime.cordoned else "no"
    )
    sheet.add("Isolation", detail.isolation)
    sheet.add_if("Process", process_text(detail.process) if detail.process is not None else "")
    sheet.add("Version", runtime.version).add("API Version", detail.api_version)
    sheet.add("Handlers", ", ".join(detail.handlers))
    rows = [[c.type, str(c.ok), c.reason, c.message] for c in detail.conditions]
    sheet.table("Conditions", ("Type", "Status", "Reason", "Message"), rows)
    section = sheet.nest("Capabilities")
    for name, has in detail.capabilities.items():
        section.add(name, "yes" if has else "no")
    if detail.traits:
        section = sheet.nest("Traits")
        for name, value in detail.traits.items():
            section.add(name, _text(value))
    sheet.add("Image Store", detail.store_id)
    images = runtime.image_service
    if images is not None:
        sheet.add("Default Images", f"yes, of type {images.workload_type}" if images.is_default else "no")
    sheet.add_if(
        "Filesystems", [f"{f.mountpoint} {human_bytes(f.used_bytes)} used" for f in detail.filesystems]
    )
    sheet.add(f"Pods ({len(detail.pods)})", detail.pods)
    add_events(sheet, events, now)
    return sheet.lines()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
