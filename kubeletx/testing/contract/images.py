"""Contract of runtimes: images, for runtimes with an image store."""

from __future__ import annotations

import msgspec
import pytest

from kubeletx.api import (
    ImageSpec,
    KubeletxError,
    PullProgress,
    Runtime,
    SandboxSpec,
    SupportsImages,
    UnitSpec,
)

from .base import ContractBase, supported


class ImageContract(ContractBase):
    """Tests of pulling, finding, listing and removing images."""

    async def test_a_pulled_image_is_found_and_listed(
        self, runtime: Runtime, unit_spec: UnitSpec, sandbox_spec: SandboxSpec
    ) -> None:
        images = supported(runtime, SupportsImages)
        steps: list[PullProgress] = []
        ref = await images.pull_image(unit_spec.image, None, sandbox_spec, steps.append)
        assert ref
        by_name = await images.find_image(unit_spec.image)
        by_ref = await images.find_image(msgspec.structs.replace(unit_spec.image, ref=ref))
        assert by_name is not None
        assert by_name == by_ref
        assert by_name.id in [image.id for image in await images.list_images()]
        assert by_name.size_bytes > 0

    async def test_pulling_twice_gives_the_same_reference(
        self, runtime: Runtime, unit_spec: UnitSpec, sandbox_spec: SandboxSpec
    ) -> None:
        images = supported(runtime, SupportsImages)
        first = await images.pull_image(unit_spec.image, None, sandbox_spec)
        assert await images.pull_image(unit_spec.image, None, None) == first

    async def test_a_removed_image_is_gone_and_may_be_removed_again(
        self, runtime: Runtime, unit_spec: UnitSpec, sandbox_spec: SandboxSpec
    ) -> None:
        images = supported(runtime, SupportsImages)
        ref = await images.pull_image(unit_spec.image, None, sandbox_spec)
        image = msgspec.structs.replace(unit_spec.image, ref=ref)
        await images.remove_image(image)
        assert await images.find_image(image) is None
        await images.remove_image(image)

    async def test_an_image_that_is_not_there_is_none(self, runtime: Runtime, missing_image: str) -> None:
        images = supported(runtime, SupportsImages)
        assert await images.find_image(ImageSpec(requested=missing_image)) is None

    async def test_an_image_that_cannot_be_pulled_raises(self, runtime: Runtime, missing_image: str) -> None:
        images = supported(runtime, SupportsImages)
        with pytest.raises(KubeletxError):
            await images.pull_image(ImageSpec(requested=missing_image), None, None)

    async def test_the_store_has_one_identity(self, runtime: Runtime) -> None:
        images = supported(runtime, SupportsImages)
        info = await images.store_info()
        assert info.id
        assert (await images.store_info()).id == info.id
        assert all(fs.mountpoint.startswith("/") for fs in info.filesystems)
