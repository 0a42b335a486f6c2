"""Volumes as containers find them (V1 to V4, V7, V8)."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import pod_manifest, put_manifest
from tests.integration.support.bench import (
    Bench,
    is_running,
    one_container,
    restarts,
    status,
    until,
    with_containers,
)


def mounted(*mounts: dict[str, Any]) -> dict[str, Any]:
    return {"volumeMounts": list(mounts)}


def volume(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, **source}


def test_an_empty_dir_lives_as_long_as_the_pod_and_is_open_to_all(bench: Bench) -> None:
    script = "touch /v/$(id -u)-$(cat /proc/sys/kernel/random/uuid); stat -c %a /v; id -u; [ $(ls /v | wc -l) -gt 1 ] && sleep 1000; exit 1"
    bench.put(
        "scratch",
        script,
        container=mounted({"name": "v", "mountPath": "/v"}),
        spec={"volumes": [volume("v", emptyDir={})], "securityContext": {"runAsUser": 4321}},
    )
    pod = bench.until("scratch", lambda pod: restarts(pod) == 1 and is_running(pod))
    until(lambda: bench.logs("scratch").splitlines() == ["777", "4321"], "what the second run printed")
    directory = bench.agent.root_dir / "pods" / str(pod.metadata.uid) / "volumes/kubernetes.io~empty-dir/v"
    assert len(list(directory.iterdir())) == 2


def test_memory_is_a_tmpfs_as_big_as_the_least_of_its_limits(bench: Bench) -> None:
    volumes = [
        volume("limited", emptyDir={"medium": "Memory", "sizeLimit": "2Mi"}),
        volume("by-pod", emptyDir={"medium": "Memory"}),
        volume("large", emptyDir={"medium": "Memory", "sizeLimit": "1Gi"}),
    ]
    text = bench.run(
        "memory",
        "for v in limited by-pod large; do df -k /$v | awk 'END {print $2}'; grep \" /$v \" /proc/mounts | cut -d' ' -f3; done",
        container={
            **mounted(*({"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes)),
            "resources": {"limits": {"memory": "32Mi"}},
        },
        spec={"volumes": volumes},
    )
    assert text.split() == ["2048", "tmpfs", str(32 * 1024), "tmpfs", str(32 * 1024), "tmpfs"]


def test_containers_of_a_pod_share_a_volume(bench: Bench) -> None:
    mount = mounted({"name": "v", "mountPath": "/v"})
    spec = with_containers(
        one_container("writer", "echo shared > /v/file; sleep 1000", **mount),
        one_container(
            "reader",
            readinessProbe={"exec": {"command": ["grep", "shared", "/v/file"]}, "periodSeconds": 1},
            volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": True}],
        ),
        volumes=[volume("v", emptyDir={})],
    )
    bench.put("sharing", spec=spec)
    bench.ready("sharing")
    assert "Read-only" in bench.exec("sharing", "touch /v/other", "reader")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    """A directory of the node with one thing of each kind."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("content\n")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    os.mknod(tmp_path / "char", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(tmp_path / "block", 0o600 | stat.S_IFBLK, os.makedev(7, 250))
    yield tmp_path
    server.close()


_KINDS = {
    "dir": "Directory",
    "file": "File",
    "socket": "Socket",
    "char": "CharDevice",
    "block": "BlockDevice",
    "new/dir": "DirectoryOrCreate",
    "new-file": "FileOrCreate",
}


def test_host_paths_of_every_type_are_checked_and_mounted(bench: Bench, host: Path) -> None:
    names = {path: path.replace("/", "-") for path in _KINDS}
    volumes = [
        volume(names[path], hostPath={"path": str(host / path), "type": kind})
        for path, kind in _KINDS.items()
    ]
    mounts = [{"name": name, "mountPath": f"/m/{name}"} for name in names.values()]
    text = bench.run(
        "host-paths", "cd /m; stat -c '%n %F' *", container=mounted(*mounts), spec={"volumes": volumes}
    )
    found = dict(line.split(" ", 1) for line in text.splitlines())
    assert found == {
        "dir": "directory",
        "file": "regular file",
        "socket": "socket",
        "char": "character special file",
        "block": "block special file",
        "new-dir": "directory",
        "new-file": "regular empty file",
    }
    assert stat.S_IMODE((host / "new" / "dir").stat().st_mode) == 0o755
    assert stat.S_IMODE((host / "new-file").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("missing", "Directory", "is not a directory"),
        ("file", "Directory", "is not a directory"),
        ("dir", "File", "is not a file"),
        ("file", "Socket", "is not a socket"),
        ("file", "CharDevice", "is not a char"),
        ("file", "BlockDevice", "is not a block"),
    ],
)
def test_a_host_path_of_another_type_is_refused_until_it_is_right(
    bench: Bench, host: Path, path: str, kind: str, words: str
) -> None:
    name = f"wrong-{path}-{kind.lower()}"
    bench.put(
        name,
        container=mounted({"name": "v", "mountPath": "/v"}),
        spec={"volumes": [volume("v", hostPath={"path": str(host / path), "type": kind})]},
    )
    reported = bench.event(name, "FailedMount")
    assert words in reported["message"]
    assert reported["message"].startswith(
        'MountVolume.SetUp failed for volume "v" : hostPath type check failed: '
    )
    assert reported["type"] == "Warning"
    bench.waiting(name, "ContainerCreating")
    if path == "missing":
        (host / path).mkdir()
        bench.ready(name)
    bench.remove(name)


def test_sub_paths_take_a_part_and_their_expressions_are_expanded(bench: Bench) -> None:
    env = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    text = bench.run(
        "sub-paths",
        "echo one > /a/f; echo two > /b/f; cd /all; find . -type f | sort",
        container={
            "env": env,
            **mounted(
                {"name": "v", "mountPath": "/all"},
                {"name": "v", "mountPath": "/a", "subPath": "deep/er"},
                {"name": "v", "mountPath": "/b", "subPathExpr": "by/$(POD)"},
            ),
        },
        spec={"volumes": [volume("v", emptyDir={})]},
    )
    assert text.split() == ["./by/sub-paths-lab/f", "./deep/er/f"]


def test_sub_paths_with_every_end_of_a_line_start_propagate_and_go(bench: Bench) -> None:
    """The mount table holds such names as they are: neither this pod nor its neighbour stumbles over them."""
    names = [f"a{end}b" for end in ("\u2028", "\x85", "\r", "\f", "\v", "\x1c", "\n", " ")]
    mounts = [{"name": "v", "mountPath": f"/m{n}", "subPath": name} for n, name in enumerate(names)]
    bench.put(
        "odd-sub-paths",
        container=mounted(*mounts, {"name": "v", "mountPath": "/all"}),
        spec={"volumes": [volume("v", emptyDir={})]},
    )
    bench.ready("odd-sub-paths")
    made = bench.exec("odd-sub-paths", "for m in /m*; do echo x >$m/f; done; find /all -name f | grep -c f$")
    assert made.strip() == str(len(names))
    bench.put(
        "neighbour",
        container=mounted({"name": "v", "mountPath": "/v", "mountPropagation": "HostToContainer"}),
        spec={"volumes": [volume("v", emptyDir={})]},
    )
    bench.ready("neighbour")
    bench.remove("odd-sub-paths", "neighbour")


def test_the_downward_api_writes_files_with_their_modes(bench: Bench) -> None:
    items = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "deep/labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}, "mode": 0o400},
        {
            "path": "cpu",
            "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"},
        },
    ]
    sources = [{"downwardAPI": {"items": [{"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}}]}}]
    script = """
        cd /facts; cat name; echo; cat deep/labels; echo; cat note; echo; cat cpu; echo
        stat -Lc '%n %a' name note deep; readlink name; readlink ..data | grep -c '^\\.\\.20'
        cat /projected/uid; echo; stat -Lc %a /projected/uid
    """
    text = bench.run(
        "downward",
        script,
        container={
            "resources": {"limits": {"cpu": "150m"}},
            **mounted({"name": "facts", "mountPath": "/facts"}, {"name": "p", "mountPath": "/projected"}),
        },
        spec={
            "volumes": [
                volume("facts", downwardAPI={"items": items}),
                volume("p", projected={"sources": sources, "defaultMode": 0o440}),
            ]
        },
        metadata={"labels": {"a": "1", "b": "2"}, "annotations": {"note": "hello"}},
    )
    uid = bench.pod("downward").metadata.uid
    assert text.splitlines() == [
        "downward-lab",
        'a="1"',
        'b="2"',
        "hello",
        "150",
        "name 644",
        "note 400",
        "deep 755",
        "..data/name",
        "1",
        str(uid),
        "440",
    ]


def test_a_changed_label_of_an_applied_pod_reaches_its_files(bench: Bench, tmp_path: Path) -> None:
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    manifest = pod_manifest(
        "relabelled",
        container=mounted({"name": "v", "mountPath": "/v"}),
        spec={"volumes": [volume("v", downwardAPI={"items": items})]},
        metadata={"labels": {"color": "red"}},
    )
    path = put_manifest(tmp_path, manifest)
    assert bench.agent.cli("apply", "-f", str(path)).returncode == 0
    bench.agent.wait_for("relabelled")
    manifest["metadata"]["labels"]["color"] = "blue"
    put_manifest(tmp_path, manifest)
    assert bench.agent.cli("apply", "-f", str(path)).returncode == 0
    until(lambda: bench.exec("relabelled", "cat /v/labels") == 'color="blue"', "the new label")
    bench.agent.cli("delete", "pod", "relabelled", "--grace-period=1")


def test_read_only_mounts_and_mount_options_are_in_the_status(bench: Bench) -> None:
    bench.put(
        "read-only",
        container=mounted(
            {"name": "v", "mountPath": "/v", "readOnly": True}, {"name": "v", "mountPath": "/w"}
        ),
        spec={"volumes": [volume("v", emptyDir={})]},
    )
    pod = bench.ready("read-only")
    found = {one.mount_path: one.read_only for one in status(pod).volume_mounts}
    assert found == {"/v": True, "/w": False}
    assert bench.exec("read-only", "touch /w/x; touch /v/x").count("Read-only") == 1


def test_group_and_set_gid_come_with_fs_group(bench: Bench) -> None:
    text = bench.run(
        "fs-group",
        "stat -c '%g %a' /v /m; touch /v/x; stat -c %g /v/x; id -G",
        container=mounted({"name": "v", "mountPath": "/v"}, {"name": "m", "mountPath": "/m"}),
        spec={
            "volumes": [volume("v", emptyDir={}), volume("m", emptyDir={"medium": "Memory"})],
            "securityContext": {"fsGroup": 2345, "runAsUser": 1000},
        },
    )
    lines = text.splitlines()
    assert lines[:2] == ["2345 2777", "2345 3777"]
    assert lines[2] == "2345"
    assert "2345" in lines[3].split()


def test_mounts_of_the_node_reach_a_container_that_asks_for_them(bench: Bench) -> None:
    shared = bench.agent.lab.base_dir / "shared"
    shared.mkdir()
    subprocess.run(["mount", "--bind", str(shared), str(shared)], check=True)
    subprocess.run(["mount", "--make-shared", str(shared)], check=True)
    try:
        (shared / "late").mkdir()
        mounts = {
            "slave": {"name": "v", "mountPath": "/v", "mountPropagation": "HostToContainer"},
            "private": {"name": "v", "mountPath": "/v"},
        }
        for name, mount in mounts.items():
            spec = {"volumes": [volume("v", hostPath={"path": str(shared)})]}
            bench.put(f"propagation-{name}", container=mounted(mount), spec=spec)
        for name in mounts:
            bench.ready(f"propagation-{name}")
        subprocess.run(["mount", "-t", "tmpfs", "none", str(shared / "late")], check=True)
        (shared / "late" / "file").touch()
        assert bench.exec("propagation-slave", "ls /v/late") == "file\n"
        assert bench.exec("propagation-private", "ls /v/late") == ""
        bench.remove(*(f"propagation-{name}" for name in mounts))
    finally:
        subprocess.run(["umount", "-R", str(shared)], check=True)


def test_an_image_volume_waits_where_the_runtime_has_none(bench: Bench) -> None:
    source = {"reference": "registry.local/busybox:1"}
    bench.put(
        "image-volume",
        container=mounted({"name": "v", "mountPath": "/v"}),
        spec={"volumes": [volume("v", image=source)]},
    )
    pod = bench.until("image-volume", lambda pod: pod.status.phase == "Running" or bool(pod.status.reason))
    assert (pod.status.phase, pod.status.reason) == ("Pending", "RuntimeUnsupported")
    assert "image-volumes" in (pod.status.message or "")
