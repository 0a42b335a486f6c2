"""`CriImages`: implements `SupportsImages` with CRI's ImageService, on the runtime endpoint or a separate one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
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
"""Function whose coroutine passes progress reports of the running pulls to its argument until it is cancelled."""

CRI_NAMESPACE = "k8s.io"
"""The containerd namespace that containerd's CRI uses."""


async def find_store_id(client: CriClient) -> StoreId:
    """Return the id of the server's image store, by which runtimes find out that they share a store.

    It consists of containerd's UUID and namespace; for another server it is a hash of the endpoint's address.
    """
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
        """`sandbox_image`: image of the pause containers, always reported as pinned; empty: not known.

        `store_id`: id for `store_info`. `follow`: function that reports the progress of pulls until it is
        cancelled; None: no progress is reported.
        """
        self._client = client
        self._store_id = store_id
        self._sandbox_image = sandbox_image
        self._follow = follow

    async def store_info(self) -> StoreInfo:
        """Return the store's id, and the usage of each file system that the answer to ImageFsInfo has."""
        answer = await self._client.call(
            methods.IMAGE_FS_INFO, pb.ImageFsInfoRequest(), timeout_seconds=DEADLINE_SECONDS
        )
        return StoreInfo(
            id=self._store_id,
            filesystems=tuple(filesystem_from_cri(usage) for usage in answer.image_filesystems),
        )

    async def list_images(self) -> Sequence[ImageStatus]:
        answer = await self._client.call(
            methods.LIST_IMAGES, pb.ListImagesRequest(), timeout_seconds=DEADLINE_SECONDS
        )
        return [self._pin(image_from_cri(image)) for image in answer.images]

    async def find_image(self, image: ImageSpec) -> ImageStatus | None:
        """Find an image by `image.requested`, or, if that is empty, by `image.ref`; None if it is not in the store."""
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
        """Pull an image and return the server's reference to it. Cancelling the call stops the pull.

        `auth` None: no credentials. `sandbox`: spec of the sandbox for which the image is pulled; None: there is
        none. `progress`: called with progress reports, unless `CriImages` was created without `follow`.
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
            # The reports are about all pulls of the server, so they would continue after this one.
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def remove_image(self, image: ImageSpec) -> None:
        """Remove an image; succeeds if it does not exist.

        If `image.ref` is set, the image is removed with all its tags. If it is empty, the server is asked to
        remove the name in the manifest.
        """
        request = pb.RemoveImageRequest(image=_by_name(image))
        if image.ref:
            request.image.image = image.ref
        try:
            await self._client.call(methods.REMOVE_IMAGE, request, timeout_seconds=DEADLINE_SECONDS)
        except NotFound as error:
            # NotFound may be about one of the names: the image counts as removed only if a query does not find it.
            if await self.find_image(replace(image, requested=image.ref or image.requested)) is not None:
                raise Conflict(f"{error.message}; the runtime still has the image") from error


def _by_name(image: ImageSpec) -> pb.ImageSpec:
    return pb.ImageSpec(
        image=image.requested or image.ref, annotations=image.annotations, runtime_handler=image.handler
    )
