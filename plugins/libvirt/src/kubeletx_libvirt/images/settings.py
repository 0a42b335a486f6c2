"""`ImageSettings`: the operator's settings about disk images, part of ``kubeletx.plugins.libvirt``."""

from __future__ import annotations

from typing import Annotated

import msgspec

GIB = 1 << 30
Bytes = Annotated[int, msgspec.Meta(gt=0)]


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings of the image store.

    `image_directories`: every pod may use local images and file URLs below these directories only. None, the
    default: pods from manifests may use ``/var/lib/libvirt/images``, pods from the API server none.
    `image_hosts`: images of every pod come from these servers only (``HOST``, ``HOST:PORT`` or ``*.DOMAIN``),
    also after redirects; aliases may lead elsewhere. None, the default: any server, for pods from the API server
    without addresses of the node itself.
    `image_aliases`: names for image references; an alias takes precedence over every other meaning.
    `max_image_bytes`: maximum size of a download, and of the unpacked file (64 GiB: larger than published
    cloud images, smaller than a node's disk). `max_virtual_bytes`: maximum size of the disk that an image
    defines (2 TiB: what a BIOS can boot from). `insecure_registries`: ``HOST[:PORT]`` of registries that are
    reached over plain HTTP. `image_stall_seconds`: a transfer is given up if the server sends less than 64 KiB
    in this time, or has not sent the whole manifest of an image (60, as long as a TCP connection may need to
    recover from losses).
    """

    image_directories: tuple[str, ...] | None = None
    image_hosts: tuple[str, ...] | None = None
    image_aliases: dict[str, str] = {}
    max_image_bytes: Bytes = 64 * GIB
    max_virtual_bytes: Bytes = 2048 * GIB
    insecure_registries: tuple[str, ...] = ()
    image_stall_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
