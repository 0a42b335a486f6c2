"""Another agent on the machine is noticed before anything is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubeletx.agent.host.guard import Kubelet, OwnResources, check, collisions, find_kubelets
from kubeletx.api import InvalidConfig

OURS = OwnResources(
    root_dir=Path("/srv/kubeletx"),
    logs_dir=Path("/srv/kubeletx/logs"),
    cgroup_root="kubeletx",
    sockets=("/srv/ctd.sock",),
    ports=(("127.0.0.1", 10248),),
)


def test_nothing_shared_is_not_a_collision() -> None:
    assert collisions(OURS, [Kubelet(pid=7)], lambda _a, _p: True) == []


def test_every_collision_is_named_in_one_error() -> None:
    theirs = Kubelet(
        pid=7,
        root_dir=Path("/srv"),
        logs_dir=Path("/srv/kubeletx/logs"),
        cgroup_root="kubeletx",
        sockets=("/srv/ctd.sock",),
    )
    found = collisions(OURS, [theirs], lambda _a, _p: False)
    with pytest.raises(InvalidConfig) as error:
        check(found, share_runtime=False)
    for word in (
        "--root-dir",
        "--pod-logs-dir",
        "cgroupRoot",
        "--container-runtime-endpoint",
        "10248",
        "pid 7",
    ):
        assert word in str(error.value)


def test_share_runtime_lifts_the_socket_check_only() -> None:
    found = collisions(OURS, [Kubelet(pid=7, sockets=("/srv/ctd.sock",))], lambda _a, _p: True)
    assert len(check(found, share_runtime=True)) == 1
    with pytest.raises(InvalidConfig):
        check(found, share_runtime=False)
    busy = collisions(OURS, [], lambda _a, _p: False)
    with pytest.raises(InvalidConfig):
        check(busy, share_runtime=True)


def test_an_agent_that_is_called_kubelet_does_not_find_itself(tmp_path: Path) -> None:
    for pid in (12, os.getpid()):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(b"kubelet\0--root-dir=/k\0")
    assert [one.pid for one in find_kubelets(tmp_path)] == [12]


def test_a_kubelet_is_found_by_its_command_line(tmp_path: Path) -> None:
    for pid, words in {
        "12": ["/usr/bin/kubelet", "--root-dir=/k", "--container-runtime-endpoint", "unix:///k/c.sock"],
        "13": ["/usr/bin/kubeletx", "--root-dir=/x"],
        "14": [""],
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes("\0".join(words).encode())
    found = find_kubelets(tmp_path)
    assert [(k.pid, str(k.root_dir), k.sockets) for k in found] == [(12, "/k", ("/k/c.sock",))]
