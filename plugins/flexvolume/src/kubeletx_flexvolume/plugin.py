"""Registers the volume driver ``flexvolume`` and the panel ``flexvolume-drivers``.

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
SOURCE = "flexVolume"


@hookimpl
def kubeletx_register_volume_drivers(register: RegisterVolumeDriver) -> None:
    """Register the driver of all volumes of source ``flexVolume``."""
    register(NAME, make_driver, sources=(SOURCE,), settings=FlexSettings)


@hookimpl
def kubeletx_register_panels(register: RegisterPanel) -> None:
    """Register the table of FlexVolume drivers."""
    register(PANEL, make_panel, title="FlexVolume drivers of the node")


def make_driver(settings: Any, host: VolumeHost) -> VolumeDriver:
    """Make the volume driver, without I/O."""
    from .host.volumes import FlexVolumes

    return FlexVolumes(settings, host)


def make_panel(_: Any, host: PluginHost) -> Panel:
    """Make the panel, without I/O."""
    from .host.status import FlexDriverPanel

    return FlexDriverPanel(host, NAME)
