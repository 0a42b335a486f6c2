"""Which pods of a fenced node are released, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeletx.api import NotFound
from kubeletx.kube.client.errors import BudgetExceeded
from kubeletx.kube.types.core import Pod, PodList
from kubeletx.remedy.model import FenceFlow, NodeFence, RemedySettings
from kubeletx.remedy.release import PodRelease
from kubeletx.testing import FakeClock

DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
CSI = {"csi": {"driver": "fast.example.com", "volumeHandle": "1"}, "storageClassName": "fast"}
NFS = {"nfs": {"server": "s", "path": "/"}, "storageClassName": "slow"}


class PodsOfANode:
    """An API server with pods of one node, claims and volumes. `budgets`: names of pods that may not be evicted."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.pods: list[Pod] = []
        self.budgets: set[str] = set()
        self.deleted: list[str] = []
        self.evicted: list[str] = []
        self.boot_id = "boot 1"
        self.clock: FakeClock = FakeClock()

    def add(
        self, name: str, *claims: str, volumes: list[Any] | None = None, phase: str = "", **metadata: Any
    ) -> None:
        made = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        raw = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid of {name}", **metadata},
            "spec": {"volumes": [*made, *(volumes or [])], "containers": []},
            "status": {"phase": phase} if phase else {},
        }
        self.pods.append(msgspec.convert(raw, Pod))

    def claim(self, name: str, volume: dict[str, Any] | None) -> None:
        """Add a claim that is bound to ``pv-NAME``; None: that does not exist."""
        self.objects[f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"] = {
            "spec": {"volumeName": f"pv-{name}"}
        }
        if volume is not None:
            self.objects[f"/api/v1/persistentvolumes/pv-{name}"] = {"spec": volume}

    async def release(self, *fenced: str, off: bool = False, **settings: Any) -> str:
        """Release the pods after a storage fence of these scopes, or when the node is off."""
        flow = FenceFlow(
            proofs=("power",) if off else ("storage",), fenced=fenced, fenced_boot="boot 1" if off else ""
        )
        made = PodRelease(self, self.clock, lambda: RemedySettings(**settings), lambda: True)  # type: ignore[arg-type]  # a double
        return str(await made.release(NodeFence(node="n1", flow=flow)))

    async def get(self, path: str, type_: Any, *, params: Any = None) -> Any:
        if type_ is PodList:
            assert params["fieldSelector"] == "spec.nodeName=n1"
            return PodList(items=tuple(self.pods))
        if path == "/api/v1/nodes/n1":
            return msgspec.convert({"status": {"nodeInfo": {"bootID": self.boot_id}}}, type_)
        if path not in self.objects:
            raise NotFound(path)
        return msgspec.convert(self.objects[path], type_)

    async def delete(self, path: str, *, grace_seconds: int, uid: str) -> None:
        name = path.rpartition("/")[2]
        assert (grace_seconds, uid) == (0, f"uid of {name}")
        self.deleted.append(name)

    async def request(self, method: str, path: str, *, body: bytes) -> bytes:
        name = path.split("/")[-2]
        assert (method, msgspec.json.decode(body)["deleteOptions"]["preconditions"]) == (
            "POST",
            {"uid": f"uid of {name}"},
        )
        if name in self.budgets:
            raise BudgetExceeded(name)
        self.evicted.append(name)
        return b'{"kind": "Status", "apiVersion": "v1", "status": "Success"}'


@pytest.fixture
def node() -> PodsOfANode:
    made = PodsOfANode()
    volumes: dict[str, dict[str, Any] | None] = {
        "csi": CSI,
        "nfs": NFS,
        "disk": {"local": {"path": "/d"}},
        "gone": None,
    }
    for name, volume in volumes.items():
        made.claim(name, volume)
        made.add(f"on-{name}", name)
    made.add("on-both", "csi", "nfs")
    made.add("on-csi-and-disk", "csi", "disk")
    made.add("on-nothing")
    made.add("on-a-missing-claim", "missing")
    made.add(
        "inline", volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}, {"name": "e", "emptyDir": {}}]
    )
    return made


@pytest.mark.parametrize(
    ("scope", "released"),
    [
        ("*", ["on-csi", "on-nfs", "on-both", "on-csi-and-disk", "inline"]),
        ("fast.example.com", ["on-csi", "on-csi-and-disk"]),
        ("fast", ["on-csi", "on-csi-and-disk"]),
        ("pv-nfs", ["on-nfs"]),
        ("nfs", ["on-nfs", "inline"]),
        ("other", []),
    ],
)
async def test_a_storage_fence_releases_the_pods_that_write_to_that_storage_only(
    node: PodsOfANode, scope: str, released: list[str]
) -> None:
    await node.release(scope)
    assert (node.evicted, node.deleted) == (released, [])


async def test_a_power_fence_releases_all_pods_but_mirrors_daemons_excluded_and_ended_ones() -> None:
    node = PodsOfANode()
    node.add("web-0")
    node.add("stuck", deletionTimestamp="2026-01-01T00:00:00Z")
    node.add("static", annotations={"kubernetes.io/config.mirror": "x"})
    node.add("daemon", ownerReferences=[DAEMON])
    node.add("excluded", labels={"remedy.kubeletx.io/exclude": ""})
    node.add("ended", phase="Succeeded")
    assert await node.release(off=True) == "2 pods released"
    assert (node.deleted, node.evicted) == (["web-0", "stuck"], [])
    await node.release(off=True, keeps_daemon_sets=False)
    assert "daemon" in node.deleted


async def test_a_budget_keeps_a_pod_until_the_node_is_off(node: PodsOfANode) -> None:
    node.budgets = {"on-csi"}
    assert await node.release("fast") == "1 pods released, 1 wait for their disruption budgets"
    assert (node.evicted, node.deleted) == (["on-csi-and-disk"], [])
    await node.release(off=True, force_after_power=False)
    assert "on-csi" not in node.evicted
    await node.release(off=True)
    assert "on-csi" in node.deleted


async def test_without_respect_for_budgets_pods_are_deleted_after_a_storage_fence(node: PodsOfANode) -> None:
    await node.release("fast", respect_budgets=False)
    assert (node.evicted, node.deleted) == ([], ["on-csi", "on-csi-and-disk"])


async def test_a_pod_that_is_already_deleted_needs_no_budget() -> None:
    node = PodsOfANode()
    node.claim("csi", CSI)
    node.add("stuck", "csi", deletionTimestamp="2026-01-01T00:00:00Z")
    node.budgets = {"stuck"}
    await node.release("*")
    assert node.deleted == ["stuck"]


async def test_a_node_that_has_booted_since_it_was_off_keeps_its_pods(node: PodsOfANode) -> None:
    node.boot_id = "boot 2"
    assert await node.release(off=True) == "0 pods released; the node has booted, so its other pods stay"
    assert (node.deleted, node.evicted) == ([], [])


class SteppingClock(FakeClock):
    """A clock on which a sleep ends at once. `seen`: called after each sleep."""

    def __init__(self, seen: Callable[[], object]) -> None:
        super().__init__()
        self._seen = seen

    async def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 30
        self.advance(seconds)
        self._seen()


async def test_pods_per_minute_are_limited_and_a_boot_meanwhile_ends_the_release() -> None:
    node = PodsOfANode()
    for number in range(5):
        node.add(f"web-{number}")

    def boot() -> None:
        node.boot_id = "boot 2" if len(node.deleted) == 3 else node.boot_id

    node.clock = SteppingClock(boot)
    begin = node.clock.monotonic()
    await node.release(off=True, pods_per_minute=2)
    assert (node.deleted, node.clock.monotonic() - begin) == (["web-0", "web-1", "web-2"], 90.0)
