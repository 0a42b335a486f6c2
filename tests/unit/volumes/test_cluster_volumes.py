"""Volumes from objects of the cluster: tokens, claims, exports, and what happens while no one answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import ClusterVolume, KubeletxError, ObjectData, SourceKind, TokenParameters, Unavailable
from kubeletx.volumes import VolumeError
from tests.unit.volumes.volume_doubles import FakeCluster, FakeMounter, make_pod, make_preparer

TOKEN = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
CLAIM = {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}


class SilentCluster(FakeCluster):
    """Knows nothing while `is_silent`."""

    is_silent = False

    def _check(self) -> None:
        if self.is_silent:
            raise Unavailable("the API server does not answer")

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        self._check()
        return await super().find_config_map(namespace, name)

    async def token(self, uid: Any, wanted: TokenParameters) -> bytes:
        self._check()
        return await super().token(uid, wanted)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("security", "expected"),
    [({}, 0o644), ({"runAsUser": os.getuid()}, 0o600), ({"fsGroup": os.getgid()}, 0o640)],
)
async def test_a_token_is_for_the_pods_only_user_or_group(
    tmp_path: Path, security: dict[str, int], expected: int
) -> None:
    cluster, mounter = FakeCluster(), FakeMounter()
    cluster.tokens[TokenParameters()] = b"jwt"
    containers = [{"name": "a"}, {"name": "b"}]
    pod = make_pod({"volumes": [TOKEN], "securityContext": security, "containers": containers})
    prepared = await make_preparer(tmp_path, mounter=mounter).prepare(pod, cluster)
    file = Path(prepared.volumes["t"].source) / "token"
    assert (file.read_bytes(), mode(file)) == (b"jwt", expected)
    assert mounter.calls[0].startswith("mount tmpfs")


async def test_containers_of_different_users_share_a_token_that_all_may_read(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.tokens[TokenParameters()] = b"jwt"
    containers = [{"name": "a", "securityContext": {"runAsUser": 1}}, {"name": "b"}]
    pod = make_pod({"volumes": [TOKEN], "containers": containers})
    prepared = await make_preparer(tmp_path).prepare(pod, cluster)
    assert mode(Path(prepared.volumes["t"].source) / "token") == 0o644


async def test_a_new_token_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    cluster, preparer, pod = FakeCluster(), make_preparer(tmp_path), make_pod({"volumes": [TOKEN]})
    for text in (b"one", b"two"):
        cluster.tokens[TokenParameters()] = text
        prepared = await preparer.prepare(pod, cluster)
        assert (Path(prepared.volumes["t"].source) / "token").read_bytes() == text


@pytest.mark.parametrize("kind", ["clusterTrustBundle", "podCertificate"])
async def test_sources_that_this_agent_does_not_know_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    pod = make_pod({"volumes": [{"name": "p", "projected": {"sources": [{kind: {}}]}}]})
    with pytest.raises(VolumeError, match=rf"kubeletx does not support .*sources\[0\]\.{kind}") as caught:
        await make_preparer(tmp_path).prepare(pod, FakeCluster())
    assert caught.value.reason == "FailedMount"


async def test_a_projected_source_that_the_api_server_emptied_is_not_given_the_name_of_another(
    tmp_path: Path,
) -> None:
    pod = make_pod({"volumes": [{"name": "p", "projected": {"sources": [{}]}}]})
    with pytest.raises(VolumeError, match=r"source is empty: .*projected\.sources\[0\]") as caught:
        await make_preparer(tmp_path).prepare(pod, FakeCluster())
    assert "podCertificate" not in str(caught.value)


async def test_a_volume_that_was_written_before_stays_while_no_one_answers(tmp_path: Path) -> None:
    cluster = SilentCluster()
    cluster.tokens[TokenParameters()] = b"jwt"
    cluster.config_maps["m"] = ObjectData(text={"a": "1"})
    pod = make_pod({"volumes": [TOKEN, {"name": "c", "configMap": {"name": "m"}}]})
    before = await make_preparer(tmp_path).prepare(pod, cluster)
    cluster.is_silent = True
    after = await make_preparer(tmp_path).prepare(pod, cluster)  # an agent that started anew
    assert after == before
    assert (Path(after.volumes["c"].source) / "a").read_text() == "1"
    assert (Path(after.volumes["t"].source) / "token").read_text() == "jwt"


async def test_a_volume_that_fails_is_reported_in_the_kubelets_words(tmp_path: Path) -> None:
    pod = make_pod({"volumes": [{"name": "c", "configMap": {"name": "m"}}]})
    with pytest.raises(VolumeError) as caught:
        await make_preparer(tmp_path).prepare(pod, FakeCluster())
    assert str(caught.value) == (
        'MountVolume.SetUp failed for volume "c" : configmap "m" not found; create it, or mark it optional '
        "(spec.volumes[0].configMap)"
    )


async def test_a_volume_that_was_never_written_waits_until_someone_answers(tmp_path: Path) -> None:
    cluster = SilentCluster()
    cluster.is_silent = True
    pod = make_pod({"volumes": [{"name": "c", "configMap": {"name": "m", "optional": True}}]})
    with pytest.raises(Unavailable, match="does not answer") as caught:
        await make_preparer(tmp_path).prepare(pod, cluster)
    assert caught.value.reason == "FailedMount"


async def prepare_claim(
    tmp_path: Path, volume: ClusterVolume | None, *, mounter: FakeMounter | None = None, **spec: Any
) -> Any:
    cluster = FakeCluster()
    if volume is not None:
        cluster.claims["data"] = volume
    pod = make_pod({"volumes": [CLAIM], **spec})
    preparer = make_preparer(tmp_path / "root", mounter=mounter or FakeMounter())
    return (await preparer.prepare(pod, cluster)).volumes["d"]


async def test_a_local_volume_is_its_directory_with_the_pods_group(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    security = {"securityContext": {"fsGroup": os.getgid()}}
    volume = ClusterVolume(name="pv", kind="local", path=str(disk))
    found = await prepare_claim(tmp_path, volume, **security)
    assert (found.source, found.read_only, found.managed) == (str(disk), False, False)
    assert disk.stat().st_mode & 0o2770 == 0o2770


async def test_what_containers_do_to_a_local_volume_stays_when_it_is_prepared_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    (disk / "key").touch(mode=0o600)
    security = {"securityContext": {"fsGroup": os.getgid()}}
    volume = ClusterVolume(name="pv", kind="local", path=str(disk))
    await prepare_claim(tmp_path, volume, **security)
    assert mode(disk / "key") == 0o660
    (disk / "key").chmod(0o600)
    disk.chmod(0o700)
    await prepare_claim(tmp_path, volume, **security)  # by an agent that was started anew
    assert (mode(disk), mode(disk / "key")) == (0o700, 0o600)


async def test_a_claim_that_the_pod_takes_read_only_is_left_as_it_is(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    claim = {"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    spec = {"securityContext": {"fsGroup": os.getgid()}, "volumes": [claim]}
    found = await prepare_claim(tmp_path, ClusterVolume(name="pv", kind="local", path=str(disk)), **spec)
    assert found.read_only
    assert mode(disk) == 0o700


async def test_a_host_path_volume_is_checked_like_a_host_path(tmp_path: Path) -> None:
    volume = ClusterVolume(name="pv", kind="hostPath", path=str(tmp_path / "new"), check="DirectoryOrCreate")
    assert (await prepare_claim(tmp_path, volume)).source == str(tmp_path / "new")
    with pytest.raises(Unavailable, match="is not a socket"):
        await prepare_claim(
            tmp_path, ClusterVolume(name="pv", kind="hostPath", path=str(tmp_path), check="Socket")
        )


async def test_an_export_is_mounted_once_by_the_systems_helper(tmp_path: Path) -> None:
    mounter = FakeMounter()
    volume = ClusterVolume(
        name="pv", kind="nfs", server="files", path="/x", read_only=True, mount_options=("nfsvers=4.2",)
    )
    for _ in range(2):
        found = await prepare_claim(tmp_path, volume, mounter=mounter)
    assert mounter.calls == ["mount nfs pv nfsvers=4.2,ro"]
    assert mounter.table[0].source == "files:/x"
    assert found.source.endswith("/volumes/kubernetes.io~nfs/pv")
    assert found.read_only


async def test_an_export_needs_no_cluster_and_goes_when_the_pod_goes(tmp_path: Path) -> None:
    mounter = FakeMounter()
    preparer = make_preparer(tmp_path, mounter=mounter)
    pod = make_pod({"volumes": [{"name": "n", "nfs": {"server": "fd00::1", "path": "/x"}}]})
    await preparer.prepare(pod)
    assert mounter.table[0].source == "[fd00::1]:/x"
    await preparer.release(pod.uid)
    assert mounter.table == []


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        (None, 'persistentvolumeclaim "data" not found'),
        (ClusterVolume(name="pv", kind="local", path="/nowhere/at/all"), "does not exist"),
        (ClusterVolume(name="pv", kind="local", path="/dev/null", is_block=True), "is not a block device"),
        (
            ClusterVolume(name="pv", kind="local", path="/dev/null"),
            "is neither a directory nor a block device",
        ),
        (ClusterVolume(name="pv", kind="csi", source={"driver": "x"}), r"serves volume pv \(csi, driver x\)"),
        (ClusterVolume(name="pv", kind="local", path="/", is_here=False), "node affinity"),
    ],
)
async def test_a_claim_that_cannot_be_used_says_why(
    tmp_path: Path, volume: ClusterVolume | None, text: str
) -> None:
    with pytest.raises(KubeletxError, match=text) as caught:
        await prepare_claim(tmp_path, volume)
    assert caught.value.reason == "FailedMount"


async def test_a_claim_of_a_pod_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="cannot be read"):
        await make_preparer(tmp_path).prepare(make_pod({"volumes": [CLAIM]}))


async def test_the_claim_of_a_template_has_the_names_of_pod_and_volume(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.claims["web-d"] = ClusterVolume(name="pv", kind="hostPath", path="/srv")
    pod = make_pod({"volumes": [{"name": "d", "ephemeral": {"volumeClaimTemplate": {}}}]})
    prepared = await make_preparer(tmp_path).prepare(pod, cluster)
    assert (prepared.volumes["d"].source, prepared.volumes["d"].kind) == ("/srv", SourceKind.DIRECTORY)
