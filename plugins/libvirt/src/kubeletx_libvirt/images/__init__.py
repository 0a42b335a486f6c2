"""The image store: disks from URLs, files and registries, kept once and shared by all overlays."""

from .reference import ImageSource
from .service import BaseDisk, InUse, LibvirtImages
from .settings import ImageSettings

__all__ = ["BaseDisk", "ImageSettings", "ImageSource", "InUse", "LibvirtImages"]
