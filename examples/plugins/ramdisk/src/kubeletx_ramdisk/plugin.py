"""The hook: registers the volume driver ``ramdisk``."""

from kubeletx.api import RegisterVolumeDriver, hookimpl

from .driver import Ramdisk, Settings


@hookimpl
def kubeletx_register_volume_drivers(register: RegisterVolumeDriver) -> None:
    """Serve one driver name of each of two sources."""
    sources = ("flexVolume:example.com/ramdisk", "csi:ramdisk.example.com")
    register("ramdisk", Ramdisk, sources=sources, settings=Settings)
