"""Config maps, secrets and claims of the node: who has them, what pods see, what is stored."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.api import Conflict, NotFound, ObjectUser, PodUid, Unavailable
from kubeletx.kube.manifests.load import load_all
from kubeletx.kube.manifests.objects import LocalObject, key_of
from kubeletx.pods.model.sources import APPLIED
from kubeletx.static.applied import ApplyOutcome
from kubeletx.static.applied_objects import AppliedObjects
from kubeletx.static.local_objects import LocalObjects
from kubeletx.testing.clock import FakeClock

USER = ObjectUser(
    uid=PodUid("u1"),
    name="web",
    namespace="default",
    config_maps=frozenset({"web", "late"}),
    secrets=frozenset({"login"}),
)
CLAIM = """
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data%s},
 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}%s}}
"""


def config(value: str, name: str = "web", more: str = "") -> LocalObject:
    text = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{a: '{value}'}}{more}}}"
    return load_all(text.encode(), "x").objects[0].item


def claim(size: str = "1Gi", notes: str = "", more: str = "") -> LocalObject:
    return load_all((CLAIM % (notes, size, more)).encode(), "x").objects[0].item


class Node:
    """Objects of a node, with one pod that uses them; `told` counts how often the pod was told of a change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.objects = LocalObjects(claims=root / "claims", wait_seconds=0.01)
        self.told = 0
        self.objects.subscribe(lambda _: self._tell())
        self.objects.follow(USER)
        self.applied = AppliedObjects(directory=root / "objects", objects=self.objects, clock=FakeClock())

    def _tell(self) -> None:
        self.told += 1

    async def value(self, name: str = "web") -> str | None:
        data = await self.objects.find_config_map("default", name)
        return data.text["a"] if data is not None else None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_an_object_is_unknown_until_the_manifests_are_read(node: Node) -> None:
    with pytest.raises(Unavailable, match='configmap "default/late" cannot be read: the manifests are not'):
        await node.value("late")
    node.objects.put("/m/a.yaml", [config("1")])
    assert await node.value() == "1"
    node.objects.set_complete()
    assert await node.value("late") is None
    assert node.told == 2


async def test_the_first_manifest_has_the_object_and_an_applied_one_goes_before(node: Node) -> None:
    node.objects.set_complete()
    node.objects.put("/m/b.yaml", [config("b")])
    concerned: list[set[str]] = []
    node.objects.on_concerned = concerned.append
    node.objects.put("/m/a.yaml", [config("a"), config("c", "other")])
    assert concerned == [{"/m/b.yaml"}]
    assert await node.value() == "a"
    problem = node.objects.problem("/m/b.yaml")
    assert problem is not None
    assert "is already defined by /m/a.yaml" in str(problem)
    assert node.objects.problem("/m/a.yaml") is None
    node.objects.put("/m/a.yaml", [])
    assert await node.value() == "b"
    node.objects.put(APPLIED, [config("applied")])
    assert await node.value() == "applied"
    assert "by 'kubeletx apply'" in str(node.objects.problem("/m/b.yaml"))


async def test_only_users_of_a_changed_object_write_their_volumes_again(node: Node) -> None:
    node.objects.set_complete()
    told = node.told
    node.objects.put("/m/a.yaml", [config("1", "unused")])
    assert node.told == told
    node.objects.put("/m/b.yaml", [config("1")])
    node.objects.put("/m/b.yaml", [config("1")])
    assert node.told == told + 1
    node.objects.leave(USER.uid)
    node.objects.put("/m/b.yaml", [config("2")])
    assert node.told == told + 1


async def test_an_immutable_object_of_a_manifest_keeps_its_content(node: Node) -> None:
    node.objects.put("/m/a.yaml", [config("1", more=", immutable: true")])
    node.objects.put("/m/a.yaml", [config("2")])
    assert await node.value() == "1"
    assert "is immutable and keeps its content" in str(node.objects.problem("/m/a.yaml"))
    node.objects.put("/m/a.yaml", [])
    node.objects.put("/m/a.yaml", [config("2")])
    assert await node.value() == "2"
    assert node.objects.problem("/m/a.yaml") is None


async def test_applied_objects_are_stored_and_read_again(node: Node, tmp_path: Path) -> None:
    await node.applied.load()
    outcome, made = await node.applied.apply(config("1"))
    assert (outcome, bool(made.metadata.uid)) == (ApplyOutcome.CREATED, True)
    assert (await node.applied.apply(config("1"), dry_run=True))[0] is ApplyOutcome.UNCHANGED
    assert (await node.applied.apply(config("2"), dry_run=True))[0] is ApplyOutcome.CONFIGURED
    assert await node.value() == "1"
    assert (await node.applied.apply(config("2")))[1].metadata.uid == made.metadata.uid
    (path,) = (tmp_path / "objects").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Node(tmp_path)
    await again.applied.load()
    assert await again.value() == "2"
    await again.applied.delete(key_of(made))
    assert list((tmp_path / "objects").iterdir()) == []
    with pytest.raises(NotFound, match='configmap "default/web" not found'):
        await again.applied.delete(key_of(made))


async def test_a_broken_file_makes_only_its_object_unknown(node: Node, tmp_path: Path) -> None:
    await node.applied.load()
    await node.applied.apply(config("1"))
    await node.applied.apply(config("1", "late"))
    (tmp_path / "objects" / "configmap_default_late.yaml").write_text("{data: {a: secret-value")
    again = Node(tmp_path)
    with capture_logs() as logs:
        await again.applied.load()
    assert "secret-value" not in str(logs)
    again.objects.set_complete()
    assert await again.value() == "1"
    with pytest.raises(Unavailable, match=r'configmap "default/late" cannot be read: .*is not YAML'):
        await again.value("late")
    await again.applied.apply(config("2", "late"))
    assert await again.value("late") == "2"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (config("1", more=", immutable: true"), config("2", more=", immutable: true"), "field is immutable"),
        (config("1", more=", immutable: true"), config("1"), "field is immutable"),
        (claim(), claim(more=", storageClassName: kubeletx.io/storage"), "spec may not change except"),
        (claim("2Gi"), claim("1Gi"), "may not shrink"),
    ],
)
async def test_changes_that_a_cluster_refuses_are_refused(
    node: Node, before: LocalObject, after: LocalObject, text: str
) -> None:
    await node.applied.apply(before)
    with pytest.raises(Conflict, match=text):
        await node.applied.apply(after)


async def test_an_object_of_a_manifest_is_changed_there(node: Node) -> None:
    node.objects.put("/m/a.yaml", [config("1")])
    with pytest.raises(Conflict, match=r"comes from manifest /m/a\.yaml; change or remove it there"):
        await node.applied.apply(config("2"))
    with pytest.raises(Conflict, match="comes from manifest"):
        await node.applied.delete(key_of(config("1")))


async def test_a_claim_is_a_directory_that_outlives_it(node: Node, tmp_path: Path) -> None:
    node.objects.set_complete()
    assert await node.objects.find_volume(USER.uid, "data") is None
    told = node.told
    await node.applied.apply(claim())
    assert node.told == told + 1
    volume = await node.objects.find_volume(USER.uid, "data")
    assert volume is not None
    assert (volume.kind, volume.capacity_bytes) == ("local", 1 << 30)
    path = tmp_path / "claims" / "default" / "data"
    assert (volume.path, stat.S_IMODE(path.stat().st_mode)) == (str(path), 0o777)
    assert (await node.applied.apply(claim("2Gi")))[0] is ApplyOutcome.CONFIGURED
    with pytest.raises(Conflict, match="is used by pod default/web; delete the pod first"):
        await node.applied.delete(key_of(claim()))
    node.objects.leave(USER.uid)
    await node.applied.delete(key_of(claim()))
    assert path.is_dir()


async def test_a_claim_of_the_storage_agent_has_its_options(node: Node) -> None:
    notes = ", annotations: {storage.kubeletx.io/backend: loop, other: x}"
    await node.applied.apply(claim("1Gi", notes, ", storageClassName: kubeletx.io/storage"))
    volume = await node.objects.find_volume(USER.uid, "data")
    assert volume is not None
    assert (volume.kind, volume.name, volume.access_modes) == (
        "flexVolume",
        "default.data",
        ("ReadWriteOnce",),
    )
    assert volume.source == {"driver": "kubeletx.io/storage", "options": {"size": "1Gi", "backend": "loop"}}


async def test_a_claim_waits_until_its_directory_can_be_made(node: Node, tmp_path: Path) -> None:
    await node.applied.apply(claim())
    (tmp_path / "claims").write_text("not a directory")
    with pytest.raises(
        Unavailable, match=r'directory of persistentvolumeclaim "default/data" cannot be made'
    ):
        await node.objects.find_volume(USER.uid, "data")


async def test_a_full_disk_is_reported_and_changes_nothing(node: Node, tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("not a directory")
    with pytest.raises(Unavailable, match=r"cannot write configmap .*try again"):
        await node.applied.apply(config("1"))
    node.objects.set_complete()
    assert await node.value() is None
