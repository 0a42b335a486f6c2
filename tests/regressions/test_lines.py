"""Names may hold what Python takes for the end of a line; the kernel ends lines with a line feed alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kubeletx.api import InvalidPod, PodUid, names
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.linux.mounts import find_mount, mounts_below, read_mounts
from kubeletx.node.cgroups.usage import parse_net_dev
from kubeletx.pods.specs.dns import parse_resolv_conf
from kubeletx.volumes.mounting import LinuxMounter
from tests.unit.pods.environment_model import with_container
from tests.unit.volumes.volume_doubles import FakeMounter, make_pod, make_preparer

SEPARATORS = ("\u2028", "\u2029", "\x85", "\f", "\v", "\r", "\x1c", "\x1d", "\x1e")
ODD = [f"a{one}b" for one in SEPARATORS] + ["a\nb", "a\tb", "a b", "a\\b", "a\\012b", "a\x01b", "\u2028"]
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


@ROOT
async def test_pods_with_odd_sub_paths_start_and_end_and_disturb_no_other(tmp_path):
    """On the real mount table: bind mounts are made and seen, and nothing is left."""
    preparer = make_preparer(tmp_path, mounter=LinuxMounter())
    mounts = [
        {"name": "v", "mountPath": f"/m{index}", "subPath": name, "mountPropagation": "HostToContainer"}
        for index, name in enumerate(ODD)
    ]
    pod, container = with_container(
        {"volumeMounts": mounts},
        volumes=[{"name": "v", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}],
    )
    try:
        prepared = await preparer.prepare(pod)
        found = await preparer.mounts_for(
            pod, container, prepared, attempt=0, environment={}, hosts_text=None, recursive_read_only=False
        )
        assert len(found.mounts) == len(ODD) + 1
        assert find_mount(read_mounts(), Path(found.mounts[0].source)) is not None
        (await preparer.prepare(pod))
    finally:
        await preparer.release(PodUid(pod.uid))
    assert not mounts_below(read_mounts(), tmp_path)
    assert not (tmp_path / "pods" / pod.uid / "volumes").exists()


@ROOT
@pytest.mark.parametrize("name", ODD)
def test_shares_of_machines_find_their_mounts_again(name, tmp_path):
    binds = pytest.importorskip("kubeletx_libvirt.binds")
    source, point = tmp_path / "source", tmp_path / "points" / name
    source.mkdir()
    point.mkdir(parents=True)
    try:
        binds.bind(str(source), str(point), aside=tmp_path / "aside")
        assert binds.mounts_below(tmp_path / "points") == {str(point): True}
        binds.unbind(str(point))
        assert binds.mounts_below(tmp_path) == {}
    finally:
        subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=False)


async def test_a_sub_path_with_a_nul_is_refused(tmp_path):
    preparer = make_preparer(tmp_path, mounter=FakeMounter())
    pod, container = with_container(
        {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    prepared = await preparer.prepare(pod)
    with pytest.raises(InvalidPod, match=r"subPathExpr: 'a\\x00b' contains a NUL") as caught:
        await preparer.mounts_for(
            pod,
            container,
            prepared,
            attempt=0,
            environment={"A": "a\0b"},
            hosts_text=None,
            recursive_read_only=False,
        )
    assert caught.value.reason == "CreateContainerConfigError"


def test_an_interface_may_have_any_name():
    numbers = "1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0"
    text = f"Inter-|\n face |\n    lo: {numbers}\n  a\x1cb: {numbers}\n\u2028\x85: {numbers}\n broken: x\n eth0: {numbers}\n"
    assert [one.name for one in parse_net_dev(text)] == ["a\x1cb", "\u2028\x85", "eth0"]


def test_the_nodes_resolver_settings_end_at_line_feeds():
    found = parse_resolv_conf("search a\u2028nameserver 192.0.2.9\nnameserver 192.0.2.1\n")
    assert found.servers == ("192.0.2.1",)


def test_certificates_of_a_machine_are_the_same_after_a_round_trip():
    pod = make_pod(
        {"containers": [{"name": "m", "image": "i"}]}, annotations={names.VM_CERTIFICATES: "a\u2028b\nc"}
    )
    machine = machine_of(pod, on_vm_runtime=True)
    assert machine is not None
    assert machine.trusted_image_certificate == ("a\u2028b", "c")
