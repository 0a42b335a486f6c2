"""`ImageSettings`: the operator's settings of disk images, part of ``kubeletx.plugins.libvirt``."""

from __future__ import annotations

from typing import Annotated

import msgspec

GIB = 1 << 30
Bytes = Annotated[int, msgspec.Meta(gt=0)]


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings of the image store.

    `image_directories`: local images and file URLs are read from below these only, by every pod. None, the
    default: pods of manifests may use ``/var/lib/libvirt/images``, pods of the API server none.
    `image_aliases`: name to reference; looked at before anything else.
    `max_image_bytes`: the most that is downloaded, and the most that comes out of unpacking (64 GiB: larger
    than published cloud images, smaller than a node's disk).
    `max_virtual_bytes`: the largest disk an image may claim (2 TiB: what a BIOS can boot from).
    `insecure_registries`: ``HOST[:PORT]`` of registries that are asked over plain HTTP.
    `image_stall_seconds`: a server that sends nothing for so long is given up (60, as long as a TCP
    connection may need to recover from losses).
    """

    image_directories: tuple[str, ...] | None = None
    image_aliases: dict[str, str] = {}
    max_image_bytes: Bytes = 64 * GIB
    max_virtual_bytes: Bytes = 2048 * GIB
    insecure_registries: tuple[str, ...] = ()
    image_stall_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
