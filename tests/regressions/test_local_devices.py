"""The agent's own volumes are never released by a volume driver, also if the pod has no journal.

A local volume on a block device was taken for a flexVolume of driver kubernetes.io/local-device: the plugin flexvolume
refused to release it, as it has no such driver, and the pod was never removed.
"""

from __future__ import annotations

from pathlib import Path

from kubeletx.api import PodUid
from kubeletx.testing import FakeVolumeDriver
from kubeletx.volumes.drivers import DriverEntry
from tests.unit.volumes.volume_doubles import make_preparer

OWN_KINDS = ("empty-dir", "downward-api", "projected", "configmap", "secret", "local-volume", "local-device")


async def test_volumes_of_the_agent_are_removed_without_a_volume_driver(tmp_path: Path) -> None:
    driver, root = FakeVolumeDriver(tmp_path / "volumes"), tmp_path / "root"
    preparer = make_preparer(root)
    preparer.drivers.add(DriverEntry(name="flexvolume", driver=driver, sources=("flexVolume",)))
    for kind in OWN_KINDS:
        (root / f"pods/u1/volumes/kubernetes.io~{kind}/data").mkdir(parents=True)
    await preparer.release(PodUid("u1"))
    await preparer.remove_directory(PodUid("u1"))
    assert driver.calls == []
    assert not (root / "pods/u1").exists()
