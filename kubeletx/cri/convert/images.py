"""Conversion of image specs, image statuses, registry credentials and file system usage.

The field ``image`` of CRI's ImageSpec is what the image store looks up: the store's own reference (`ImageSpec.ref`)
after the pull, or the name in the manifest before.
"""

from __future__ import annotations

from kubeletx.api import ImageAuth, ImageFilesystem, ImageSpec, ImageStatus
from kubeletx.cri.stubs import runtime_v1_pb2 as pb


def image_spec_to_cri(image: ImageSpec) -> pb.ImageSpec:
    """Convert the image of a unit for CreateContainer.

    With a `ref`, that is CRI's ``image``, and `requested` is ``user_specified_image``. With an empty `ref`,
    `requested` is ``image``.
    """
    return pb.ImageSpec(
        image=image.ref or image.requested,
        user_specified_image=image.requested if image.ref else "",
        annotations=image.annotations,
        runtime_handler=image.handler,
    )


def image_spec_from_cri(image: pb.ImageSpec) -> ImageSpec:
    """Convert the image of a CRI request; the reverse of `image_spec_to_cri`."""
    return ImageSpec(
        requested=image.user_specified_image or image.image,
        ref=image.image if image.user_specified_image else "",
        handler=image.runtime_handler,
        annotations=dict(image.annotations),
    )


def image_from_cri(image: pb.Image) -> ImageStatus:
    """Convert one image of the answer to ListImages or ImageStatus."""
    return ImageStatus(
        id=image.id,
        ref=image.id,
        tags=tuple(image.repo_tags),
        digests=tuple(image.repo_digests),
        size_bytes=image.size,
        user=image.uid.value if image.HasField("uid") else None,
        username=image.username,
        pinned=image.pinned,
    )


def auth_to_cri(auth: ImageAuth | None) -> pb.AuthConfig | None:
    """Convert registry credentials to CRI. None is returned as None: the field is not set."""
    if auth is None:
        return None
    return pb.AuthConfig(
        username=auth.username,
        password=auth.password,
        auth=auth.auth,
        server_address=auth.server_address,
        identity_token=auth.identity_token,
        registry_token=auth.registry_token,
    )


def filesystem_from_cri(usage: pb.FilesystemUsage) -> ImageFilesystem:
    """Convert the usage of one file system of an image store, from the answer to ImageFsInfo."""
    return ImageFilesystem(
        mountpoint=usage.fs_id.mountpoint,
        used_bytes=usage.used_bytes.value,
        inodes_used=usage.inodes_used.value,
        at_ns=usage.timestamp,
    )
