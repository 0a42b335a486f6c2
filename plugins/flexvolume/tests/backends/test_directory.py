"""Backend directory: nothing is attached."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.backends.directory import DirectoryBackend
from kubeletx_flexvolume.backends.pools import Pools

from kubeletx.api import InvalidConfig, NotFound
from kubeletx.linux.mounts import MountPoint
from plugins.flexvolume.tests.agent.agent_model import at_once
from plugins.flexvolume.tests.backends.backend_model import holder, mount, volume


@pytest.fixture
def table() -> list[MountPoint]:
    """Mounts of the namespace that has the pools."""
    return []


@pytest.fixture
def backend(pools: Pools, table: list[MountPoint]) -> DirectoryBackend:
    return DirectoryBackend(pools, at_once, lambda: table)


async def test_a_directory_is_made_and_returned_but_not_attached(
    backend: DirectoryBackend, pool: Path
) -> None:
    one = volume("directory", size_bytes=1)
    source = await backend.attach(one, read_only=False, secrets={})
    assert source == AttachedSource(type=SourceType.DIRECTORY, source=f"{pool}/data")
    assert (pool / "data").is_dir()
    assert await backend.find(one) is None
    await backend.detach(one)
    await backend.detach(one, force=True)
    assert (pool / "data").is_dir()


async def test_a_missing_directory_without_a_size_is_not_found(backend: DirectoryBackend) -> None:
    with pytest.raises(NotFound):
        await backend.attach(volume("directory"), read_only=False, secrets={})


async def test_a_holder_is_never_fenced(backend: DirectoryBackend) -> None:
    assert not (await backend.fence(volume("directory"), holder())).fenced
    with pytest.raises(InvalidConfig):
        backend.check(volume("directory", image="a/b"))


@pytest.mark.parametrize(
    ("base", "root"),
    [
        (mount(target="/", root="/"), "{pool}/data"),
        (mount(target="{pool}", root="/volumes"), "/volumes/data"),  # a bind mount, or a subvolume
    ],
)
def test_a_bind_mount_of_a_directory_is_recognized(
    backend: DirectoryBackend, table: list[MountPoint], pool: Path, base: MountPoint, root: str
) -> None:
    shown = mount(target="/kubelet/m", root=root.format(pool=pool))
    table += [mount(target=base.target.format(pool=pool), root=base.root), shown]
    assert backend.identify("pv-1", shown) == volume("directory")


def test_other_mounts_are_not_recognized(backend: DirectoryBackend, table: list[MountPoint]) -> None:
    shown = mount(root="/elsewhere/data")
    table.append(shown)
    assert backend.identify("pv-1", shown) is None
    table.append(mount(target="/"))
    assert backend.identify("pv-1", shown) is None
