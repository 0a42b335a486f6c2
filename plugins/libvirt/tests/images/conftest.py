"""A store on a temporary directory and a file server whose behaviour the test decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubeletx_libvirt.config import ImageSettings
from kubeletx_libvirt.images.service import LibvirtImages

from kubeletx.api import ImageSpec
from kubeletx.testing import FakeClock, FakeHost
from plugins.libvirt.tests.images.file_server import FileServer

MakeImages = Callable[..., LibvirtImages]


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with FileServer() as one:
        yield one


@pytest.fixture
async def make_images(tmp_path: Path) -> AsyncIterator[MakeImages]:
    """Stores on the same directory, as after a restart of the agent; settings as keyword arguments."""
    made: list[LibvirtImages] = []

    def make(
        *, used: Collection[str] | Exception = (), directory: Path | None = None, **settings: object
    ) -> LibvirtImages:
        async def in_use() -> Collection[str]:
            if isinstance(used, Exception):
                raise used
            return used

        settings.setdefault("image_stall_seconds", 5.0)
        host = FakeHost(tmp_path, clock=FakeClock(start=datetime.now(UTC), auto_advance=True))
        place = directory or tmp_path / "images"
        made.append(
            LibvirtImages(host=host, directory=place, settings=ImageSettings(**settings), in_use=in_use)  # type: ignore[arg-type]
        )
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
async def images(make_images: MakeImages) -> LibvirtImages:
    one = make_images()
    await one.open()
    return one


def spec(reference: str, ref: str = "") -> ImageSpec:
    """As the host asks for it."""
    return ImageSpec(requested=reference, ref=ref)
