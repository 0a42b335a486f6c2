"""The image service of a CRI server: the runtime's own endpoint or a separate one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from kubeletx.api import (
    ImageAuth,
    ImageSpec,
    ImageStatus,
    NotFound,
    PullProgress,
    SandboxSpec,
    StoreId,
    StoreInfo,
)

from . import methods
from .client import DEADLINE_SECONDS, CriClient
from .containerd import server_uuid
from .convert import (
    auth_to_cri,
    filesystem_from_cri,
    image_from_cri,
    sandbox_to_cri,
)
from .stubs import runtime_v1_pb2 as pb

FollowPull = Callable[[Callable[[PullProgress], None]], Coroutine[Any, Any, None]]
"""Reports the progress of running pulls until it is cancelled."""

CRI_NAMESPACE = "k8s.io"
"""The containerd namespace that its CRI uses."""


async def find_store_id(client: CriClient) -> StoreId:
    """Return the id of the image store: containerd's UUID and namespace; for another server a hash of its address."""
    uuid = await server_uuid(client)
    if uuid:
        return StoreId(f"{uuid}/{CRI_NAMESPACE}")
    return StoreId(f"cri-{hashlib.sha256(client.endpoint.encode()).hexdigest()[:16]}")


class CriImages:
    """Image store behind one CRI image service. Implements `SupportsImages`."""

    def __init__(
        self,
        client: CriClient,
        store_id: StoreId,
        *,
        sandbox_image: str = "",
        follow: FollowPull | None = None,
    ) -> None:
        """`sandbox_image`: image that sandboxes need, reported as pinned even if the server does not pin it.

        `follow`: reports the progress of a pull until it is cancelled; None: no progress is reported.
        """
        self._client = client
        self._store_id = store_id
        self._sandbox_image = sandbox_image
        self._follow = follow

    async def store_info(self) -> StoreInfo:
        """Return the store's id, and the usage of each file system that the server names."""
        answer = await self._client.call(
            methods.IMAGE_FS_INFO, pb.ImageFsInfoRequest(), timeout_seconds=DEADLINE_SECONDS
        )
        return StoreInfo(
            id=self._store_id,
            filesystems=tuple(filesystem_from_cri(usage) for usage in answer.image_filesystems),
        )

    async def list_images(self) -> Sequence[ImageStatus]:
        """List all images of the store, including those that other clients pulled."""
        answer = await self._client.call(
            methods.LIST_IMAGES, pb.ListImagesRequest(), timeout_seconds=DEADLINE_SECONDS
        )
        return [self._pin(image_from_cri(image)) for image in answer.images]

    async def find_image(self, image: ImageSpec) -> ImageStatus | None:
        """Find an image by its name in the manifest; None if the store does not have it.

        An image without such a name is found by its reference.
        """
        answer = await self._client.call(
            methods.IMAGE_STATUS,
            pb.ImageStatusRequest(image=_by_name(image)),
            timeout_seconds=DEADLINE_SECONDS,
        )
        return self._pin(image_from_cri(answer.image)) if answer.image.id else None

    def _pin(self, image: ImageStatus) -> ImageStatus:
        if not self._sandbox_image or image.pinned or self._sandbox_image not in image.tags:
            return image
        return replace(image, pinned=True)

    async def pull_image(
        self,
        image: ImageSpec,
        auth: ImageAuth | None,
        sandbox: SandboxSpec | None,
        progress: Callable[[PullProgress], None] | None = None,
    ) -> str:
        """Pull an image and return the server's reference to it. Cancelling the call ends the pull.

        `progress`: called with reports, if the server offers them outside CRI.
        """
        request = pb.PullImageRequest(
            image=_by_name(image),
            auth=auth_to_cri(auth),
            sandbox_config=None if sandbox is None else sandbox_to_cri(sandbox),
        )
        if progress is None or self._follow is None:
            return (await self._client.call(methods.PULL_IMAGE, request)).image_ref
        following = asyncio.create_task(self._follow(progress), name=f"progress of {image.requested}")
        try:
            return (await self._client.call(methods.PULL_IMAGE, request)).image_ref
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def remove_image(self, image: ImageSpec) -> None:
        """Remove an image. By the store's reference, if that is known, all names of the image are removed too."""
        request = pb.RemoveImageRequest(image=_by_name(image))
        if image.ref:
            request.image.image = image.ref
        try:
            await self._client.call(methods.REMOVE_IMAGE, request, timeout_seconds=DEADLINE_SECONDS)
        except NotFound:
            return


def _by_name(image: ImageSpec) -> pb.ImageSpec:
    return pb.ImageSpec(
        image=image.requested or image.ref, annotations=image.annotations, runtime_handler=image.handler
    )
