"""Output of ``describe volume``: one volume of one pod, with the pod's events about mounts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kubeletx.kube.text.human import age
from kubeletx.kube.types.event import Event
from kubeletx.server.views import VolumeView

from ..output.columns import size
from .pod import add_events
from .sheet import Sheet


def describe_volume(volume: VolumeView, events: Sequence[Event], now: datetime) -> list[str]:
    """Return the lines that ``kubeletx describe volume`` prints. `events`: events of the pod about this volume."""
    sheet = Sheet()
    sheet.add("Name", volume.name).add("Pod", f"{volume.namespace}/{volume.pod}").add(
        "Pod UID", volume.pod_uid
    )
    sheet.add("Kind", volume.kind).add_if("Volume Driver", volume.driver)
    since = f" since {age(volume.since, now)}" if volume.since is not None else ""
    sheet.add("State", f"{volume.state}{since}").add_if("Message", volume.message)
    sheet.add_if("Persistent Volume", volume.persistent_volume).add_if("Claim", volume.claim)
    sheet.add_if("Access Modes", ", ".join(volume.access_modes))
    sheet.add("Path", volume.path).add_if("Device", volume.device).add_if("File System", volume.fs_type)
    sheet.add("Read Only", "yes" if volume.read_only else "no")
    if volume.options:
        sheet.add_map("Options", {key: str(value) for key, value in volume.options.items()})
    sheet.add_if("Capacity", size(volume.capacity_bytes)).add_if("Used", size(volume.used_bytes))
    sheet.add_if("Available", size(volume.available_bytes))
    add_events(sheet, events, now)
    return sheet.lines()
