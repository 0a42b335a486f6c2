"""Backends by name, and the ones that an agent has."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.backend import Backend
from kubeletx_flexvolume.backends.pools import Pool
from kubeletx_flexvolume.backends.registry import Backends, build_backends
from kubeletx_flexvolume.commands import Commands
from kubeletx_flexvolume.values import StorageVolume

from kubeletx.api import InvalidConfig
from kubeletx.testing import FakeClock
from plugins.flexvolume.tests.agent.agent_model import at_once
from plugins.flexvolume.tests.backends.backend_model import BOOT, MIB, mount, volume

NAMES = {"directory", "fuse", "loop", "nbd", "nfs", "rbd"}


@pytest.fixture
def backends(tmp_path: Path, commands: Commands, pool: Path) -> Backends:
    return build_backends(
        {
            "default": Pool(name="default", directory=str(pool)),
            "nas": Pool(name="nas", directory=str(pool), is_shared=True),
        },
        commands=commands,
        clock=FakeClock(),
        blocking=at_once,
        boot_id=BOOT,
        state=tmp_path / "state",
        table=lambda: (mount(target="/"),),
    )


def test_every_backend_has_a_name_and_nothing_is_made_on_disk(backends: Backends, tmp_path: Path) -> None:
    assert backends.by_name.keys() == NAMES
    assert not (tmp_path / "state").exists()


def test_an_unknown_backend_is_refused_with_the_known_ones(backends: Backends) -> None:
    with pytest.raises(
        InvalidConfig, match=r"'ceph' is unknown; use one of directory, fuse, loop, nbd, nfs, rbd"
    ):
        backends.get("ceph")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("loop", set()),
        ("directory", set()),
        ("fuse", set()),
        ("nfs", {"server", "share"}),
        ("rbd", {"monitors", "user"}),
        ("nbd", {"server", "port"}),
    ],
)
def test_a_backend_has_options_of_its_own(backends: Backends, name: str, parameters: set[str]) -> None:
    assert backends.get(name).parameters == parameters


def test_a_backend_without_a_necessary_method_cannot_be_made() -> None:
    with pytest.raises(TypeError, match=r"abstract methods '?attach'?, '?check'?, '?images'?"):
        type("Unfinished", (Backend,), {"name": "unfinished"})()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_backend_fences_or_says_why_not_and_recognizes_its_mounts(backends: Backends, name: str) -> None:
    one = backends.get(name)
    assert one.unfenced or type(one).fence is not Backend.fence
    # sysfs does not show the export of an nbd device
    assert (type(one).identify is not Backend.identify) == (name != "nbd")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (volume("loop"), volume("fuse"), True),
        (volume("loop"), volume("loop", image="link"), True),
        (volume("loop"), volume("fuse", pool="nas"), True),
        (volume("loop"), volume("loop", image="other"), False),
        (volume("directory", image="a"), volume("directory", image="a", name="pv-2"), True),
        (volume("rbd"), volume("rbd", parameters={"monitors": "10.0.0.1"}), True),
        (volume("rbd"), volume("rbd", pool="fast"), False),
        (
            volume("nbd", parameters={"server": "NAS"}),
            volume("nbd", parameters={"server": "nas", "port": "10809"}),
            True,
        ),
        (
            volume("nbd", parameters={"server": "nas"}),
            volume("nbd", parameters={"server": "nas", "port": "1"}),
            False,
        ),
        (
            volume("nfs", parameters={"server": "nas", "share": "/"}, image="a"),
            volume("nfs", parameters={"server": "NAS", "share": "/"}, image="a"),
            True,
        ),
    ],
)
async def test_volumes_of_one_image_have_an_identity_in_common(
    backends: Backends, pool: Path, one: StorageVolume, other: StorageVolume, is_same: bool
) -> None:
    for name in ("data", "other"):
        (pool / name).touch()
    (pool / "link").hardlink_to(pool / "data")
    (pool / "a").mkdir()
    first, second = [set(await backends.get(each.backend).images(each)) for each in (one, other)]
    assert (not first.isdisjoint(second)) == is_same


async def test_an_image_of_a_shared_pool_has_one_name_on_all_machines(backends: Backends, pool: Path) -> None:
    shared = volume("loop", pool="nas", size_bytes=MIB)
    assert "pool nas/data" in await backends.get("loop").images(shared)
    assert list(pool.iterdir()) == []
    found = await backends.get("loop").images(shared, make=True)
    assert found == await backends.get("fuse").images(shared)
    assert [one for one in found if BOOT not in one] == ["pool nas/data"]
    (pool / "link").hardlink_to(pool / "data")
    with pytest.raises(
        InvalidConfig, match="data has 2 hard links, and another node may have it by another name"
    ):
        await backends.get("loop").images(shared, make=True)


def test_a_mount_is_recognized_by_the_backend_that_knows_it(backends: Backends, pool: Path) -> None:
    shown = backends.identify("pv-1", mount(target="/kubelet/m", root=f"{pool}/data"))
    assert shown == volume("directory")
    shown = backends.identify("pv-1", mount("nas:/export/data", fs_type="nfs4"))
    assert shown is not None
    assert shown.backend == "nfs"
    assert backends.identify("pv-1", mount("tmpfs", fs_type="tmpfs", device="0:99")) is None
