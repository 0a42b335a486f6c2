"""A container whose program is called kubelet is not a kubelet of this machine, whatever its command line says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.agent.host.guard import find_kubelets

HOST, POD = "pid:[4026531836]", "pid:[4026532000]"


def put_process(
    proc: Path, pid: str, *, namespace: str, cgroup: str = "/system.slice/kubelet.service"
) -> None:
    directory = proc / pid
    (directory / "ns").mkdir(parents=True)
    (directory / "ns/pid").symlink_to(namespace)
    (directory / "cmdline").write_bytes(b"kubelet\0--root-dir=/var/lib/kubeletx\0")
    (directory / "cgroup").write_text(f"4:memory:{cgroup}\n0::/\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(HOST)
    return tmp_path


def test_a_process_in_another_pid_namespace_is_not_a_kubelet_of_this_machine(proc: Path) -> None:
    put_process(proc, "12", namespace=POD)
    assert find_kubelets(proc) == []


@pytest.mark.parametrize(
    "cgroup",
    ["/kubepods/burstable/podx/y", "/kubepods.slice/kubepods-pod1.slice/cri-1.scope", "/lab/kubepods/podx"],
)
def test_a_process_of_a_pod_with_the_hosts_pid_namespace_is_not_a_kubelet(proc: Path, cgroup: str) -> None:
    put_process(proc, "12", namespace=HOST, cgroup=cgroup)
    assert find_kubelets(proc) == []


def test_a_kubelet_beside_pods_is_found(proc: Path) -> None:
    put_process(proc, "12", namespace=POD)
    put_process(proc, "13", namespace=HOST)
    assert [one.pid for one in find_kubelets(proc)] == [13]
