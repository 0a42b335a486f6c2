"""Columns of the table of volumes, and the function that makes its rows. Pure: the present time is an argument."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kubeletx.server.views import VolumeView

from .ages import age
from .printers import Column, human_bytes

VOLUME: Final = (
    Column("NAME"),
    Column("KIND"),
    Column("STATE"),
    Column("PERSISTENT VOLUME"),
    Column("CAPACITY"),
    Column("USED"),
    Column("SINCE"),
    Column("CLAIM", wide=True),
    Column("DRIVER", wide=True),
    Column("DEVICE", wide=True),
    Column("PATH", wide=True),
    Column("MESSAGE", wide=True),
)


def volume_name(volume: VolumeView) -> str:
    """Return the name under which a volume is shown and selected: ``POD/VOLUME``."""
    return f"{volume.pod or volume.pod_uid}/{volume.name}"


def volume_row(volume: VolumeView, now: datetime) -> list[str]:
    """Return the cells of one volume, a text for each column of `VOLUME`."""
    return [
        volume_name(volume),
        volume.kind,
        f"{volume.state},Failed" if volume.message else volume.state,
        volume.persistent_volume,
        size(volume.capacity_bytes),
        size(volume.used_bytes),
        age(volume.since, now) if volume.since is not None else "",
        volume.claim,
        volume.driver,
        volume.device,
        volume.path,
        volume.message,
    ]


def size(amount: int | None) -> str:
    """Return a size for people; empty if it is unknown."""
    return human_bytes(amount) if amount is not None else ""
