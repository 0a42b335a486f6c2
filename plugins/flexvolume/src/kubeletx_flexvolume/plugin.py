"""Registers the volume driver ``flexvolume``, and the panels ``flexvolume-drivers`` and ``storage-attachments``.

The modules that call drivers are imported only when the agent makes the volume driver.
"""

from __future__ import annotations

from typing import Any

from kubeletx.api import (
    Panel,
    PluginHost,
    RegisterPanel,
    RegisterVolumeDriver,
    VolumeDriver,
    VolumeHost,
    hookimpl,
)

from .config import FlexSettings

NAME = "flexvolume"
PANEL = "flexvolume-drivers"
"""Name of the panel; all that plugins register have different names."""
ATTACHMENTS = "storage-attachments"
SOURCE = "flexVolume"


@hookimpl
def kubeletx_register_volume_drivers(register: RegisterVolumeDriver) -> None:
    """Register the driver of all volumes of source ``flexVolume``."""
    register(NAME, make_driver, sources=(SOURCE,), settings=FlexSettings)


@hookimpl
def kubeletx_register_panels(register: RegisterPanel) -> None:
    """Register the tables of FlexVolume drivers and of storage attachments."""
    register(PANEL, make_panel, title="FlexVolume drivers of the node")
    register(ATTACHMENTS, make_attachments, title="Storage attachments of all nodes")


def make_driver(settings: Any, host: VolumeHost) -> VolumeDriver:
    """Make the volume driver, without I/O."""
    from .host.volumes import FlexVolumes

    return FlexVolumes(settings, host)


def make_panel(_: Any, host: PluginHost) -> Panel:
    """Make the panel, without I/O."""
    from .host.status import FlexPanel, show_drivers

    return FlexPanel(host, NAME, show_drivers)


def make_attachments(_: Any, host: PluginHost) -> Panel:
    """Make the panel, without I/O."""
    from .host.status import FlexPanel, show_attachments

    return FlexPanel(host, NAME, show_attachments)
