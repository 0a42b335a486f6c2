"""Any history of preparations, releases, failures, crashes and reboots: nothing that a driver did is ever forgotten."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletx.api import KubeletxError, PodUid, Unavailable
from kubeletx.testing import FakeVolumeDriver
from kubeletx.volumes import VolumePreparer
from kubeletx.volumes.drivers import DriverEntry
from tests.unit.volumes.volume_doubles import make_pod, make_preparer

UIDS = ("u1", "u2")
VOLUMES = ("a", "b")

STEPS = st.one_of(
    st.tuples(st.just("prepare"), st.sampled_from(UIDS)),
    st.tuples(st.just("release"), st.sampled_from(UIDS)),
    st.tuples(st.just("give-up"), st.sampled_from(UIDS)),
    st.tuples(
        st.sampled_from(["break", "heal"]),
        st.sampled_from([f"{m} {v}" for m in ("prepare", "release") for v in VOLUMES]),
    ),
    st.tuples(st.sampled_from(["crash", "reboot"]), st.just("")),
)


class Node:
    """A node with two pods of two volumes each; crashes lose what is in memory, reboots what a driver has mounted."""

    def __init__(self, base: Path) -> None:
        self.base, self.boot = base, 1
        self.driver = FakeVolumeDriver(base / "volumes")
        self.preparer = self.started()

    def started(self) -> VolumePreparer:
        preparer = make_preparer(self.base / "root", boot_id=f"boot-{self.boot}")
        preparer.drivers.add(DriverEntry(name="disks", driver=self.driver, sources=("flexVolume",)))
        return preparer

    async def step(self, word: str, what: str) -> None:
        pod = make_pod({"volumes": [{"name": v, "flexVolume": {"driver": "a/b"}} for v in VOLUMES]}, uid=what)
        try:
            match word:
                case "prepare":
                    await self.preparer.prepare(pod)
                    assert self.held(what) == {*VOLUMES}
                case "release":
                    await self.preparer.release(PodUid(what))
                    assert self.held(what) == set()
                    assert not (self.base / "root/pods" / what / "volumes").exists()
                case "give-up":
                    await self.give_up(pod)
                case "break":
                    self.driver.failures[what] = Unavailable(f"{what} is broken")
                case "heal":
                    self.driver.failures.pop(what, None)
                case _:
                    await self.preparer.close()
                    self.boot += word == "reboot"
                    self.preparer = self.started()
        except KubeletxError:
            pass
        self.check()

    async def give_up(self, pod: Any) -> None:
        """Cancel a preparation while its driver is at work."""
        self.driver.held["prepare a"] = asyncio.Event()
        task = asyncio.create_task(self.preparer.prepare(pod))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        self.driver.held.pop("prepare a").set()
        await asyncio.gather(task, return_exceptions=True)
        await self.preparer.close()

    def held(self, uid: str) -> set[str]:
        return {one.name for one in self.driver.prepared.values() if one.pod.uid == uid}

    def check(self) -> None:
        """Every volume that a driver holds for a pod is in the pod's journal on disk."""
        for uid in UIDS:
            path = self.base / "root/pods" / uid / "volumes.json"
            entries = json.loads(path.read_text())["entries"] if path.exists() else {}
            assert self.held(uid) <= set(entries)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_what_a_driver_holds_is_in_a_journal_and_a_release_frees_it(steps: list[tuple[str, str]]) -> None:
    base = Path(tempfile.mkdtemp(prefix="kubeletx-histories-"))

    async def live() -> None:
        node = Node(base)
        for word, what in steps:
            await node.step(word, what)
        node.driver.failures.clear()
        for uid in UIDS:
            await node.preparer.release(PodUid(uid))
            await node.preparer.remove_directory(PodUid(uid))
        assert node.driver.prepared == {}

    try:
        asyncio.run(live())
    finally:
        shutil.rmtree(base)
