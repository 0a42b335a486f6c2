"""Backend nfs: what mount(8) is given; `test_network_storage.py` of the integration tests has a real server."""

from __future__ import annotations

import pytest
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.backends.nfs import NfsBackend
from kubeletx_flexvolume.values import StorageVolume

from kubeletx.api import InvalidConfig
from plugins.flexvolume.tests.backends.backend_model import holder, mount, volume


@pytest.fixture
def backend() -> NfsBackend:
    return NfsBackend()


def remote(server: str = "nas.example.com", share: str = "/export", **changes: str) -> StorageVolume:
    return volume("nfs", parameters={"server": server, "share": share}, **changes)


@pytest.mark.parametrize(
    ("one", "source"),
    [
        (remote(), "nas.example.com:/export/data"),
        (remote(share="/"), "nas.example.com:/data"),
        (remote(server="10.0.0.7", share="/a/b_c-d.e"), "10.0.0.7:/a/b_c-d.e/data"),
        (remote(server="[2001:db8::7]"), "[2001:db8::7]:/export/data"),
    ],
)
async def test_the_source_is_the_directory_of_the_share(
    backend: NfsBackend, one: StorageVolume, source: str
) -> None:
    backend.check(one)
    attached = await backend.attach(one, read_only=False, secrets={})
    assert attached == AttachedSource(
        type=SourceType.REMOTE, source=source, fs_type="nfs", mount_options=("nosharecache",)
    )
    assert await backend.find(one) is None
    await backend.detach(one)


@pytest.mark.parametrize(
    ("one", "field"),
    [
        (volume("nfs", parameters={"share": "/export"}), "server: is missing|option server"),
        (volume("nfs", parameters={"server": "nas"}), "option share"),
        (remote(server="-o"), "option server"),
        (remote(server="a b"), "option server"),
        (remote(server="nas:/x"), "option server"),
        (remote(share="export"), "option share"),
        (remote(share="/a/../b"), "option share"),
        (remote(share="/a//b"), "option share"),
        (remote(share="/-o"), "option share"),
        (remote(share="/a\n"), "option share"),
        (remote(image="../x"), "option image"),
        (remote(image="-x"), "option image"),
    ],
)
def test_options_that_are_not_plain_words_are_refused(
    backend: NfsBackend, one: StorageVolume, field: str
) -> None:
    with pytest.raises(InvalidConfig, match=field):
        backend.check(one)


async def test_a_holder_is_never_fenced(backend: NfsBackend) -> None:
    assert not (await backend.fence(remote(), holder())).fenced


@pytest.mark.parametrize("fs_type", ["nfs", "nfs4"])
@pytest.mark.parametrize(
    "one", [remote(), remote(share="/"), remote(share="/a/b"), remote(server="[2001:db8::7]")]
)
async def test_a_mounted_directory_is_recognized(
    backend: NfsBackend, fs_type: str, one: StorageVolume
) -> None:
    source = (await backend.attach(one, read_only=False, secrets={})).source
    assert backend.identify("pv-1", mount(source, fs_type=fs_type)) == one


def test_other_mounts_are_not_recognized(backend: NfsBackend) -> None:
    assert backend.identify("pv-1", mount("nas:/export/data", fs_type="ext4")) is None
    assert backend.identify("pv-1", mount("/dev/loop1", fs_type="nfs4")) is None
