"""What a container really finds, seen from inside, on containerd; tests/integration/parity has more."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx_testing.lab import pod_manifest, put_manifest
from tests.integration.support.bench import Bench, terminated, until


def test_volumes_are_where_they_should_be(bench: Bench, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "file").write_text("from the node\n")
    volumes = [
        {"name": "plain", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "host", "hostPath": {"path": str(host), "type": "Directory"}},
        {"name": "made", "hostPath": {"path": str(host / "made"), "type": "DirectoryOrCreate"}},
        {
            "name": "facts",
            "projected": {
                "sources": [
                    {
                        "downwardAPI": {
                            "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
                        }
                    }
                ]
            },
        },
    ]
    mounts = [
        {"name": "plain", "mountPath": "/plain"},
        {"name": "plain", "mountPath": "/part", "subPathExpr": "logs/$(POD)"},
        {"name": "plain", "mountPath": "relative/path"},
        {"name": "plain", "mountPath": "/plain/../back:wards"},
        {"name": "plain", "mountPath": "/slash"},
        {"name": "memory", "mountPath": "/slash/"},
        {"name": "memory", "mountPath": "/memory"},
        {"name": "host", "mountPath": "/host", "readOnly": True},
        {"name": "host", "mountPath": "/one-file", "subPath": "file"},
        {"name": "made", "mountPath": "/made"},
        {"name": "facts", "mountPath": "/facts"},
    ]
    script = """
        echo x > /part/file && cat /plain/logs/volumes-lab/file
        cat /relative/path/logs/volumes-lab/file /back:wards/logs/volumes-lab/file
        stat -c mode=%a /plain /memory
        df -k /memory | awk 'END { print "size=" $2 }'
        cat /host/file /one-file /facts/labels; echo
        (echo no > /host/new) 2>/dev/null || echo read-only host
        (echo no > /facts/labels) 2>/dev/null || echo read-only facts
        echo made > /made/file
    """
    text = bench.run(
        "volumes",
        script,
        container={
            "volumeMounts": mounts,
            "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        },
        spec={"volumes": volumes},
        metadata={"labels": {"tier": "front"}},
    )
    assert text.splitlines() == [
        *["x"] * 3,
        "mode=777",
        "mode=1777",
        "size=1024",
        "from the node",
        "from the node",
        'tier="front"',
        "read-only host",
        "read-only facts",
    ]
    assert (host / "made" / "file").read_text() == "made\n"


def test_a_value_comes_from_a_file_of_an_init_container(bench: Bench) -> None:
    init = {
        "name": "first",
        "image": pod_manifest("x")["spec"]["containers"][0]["image"],
        "command": ["sh", "-c", "echo \"GREETING='hello you'\" > /data/app.env"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    ref = {"fileKeyRef": {"volumeName": "data", "path": "app.env", "key": "GREETING"}}
    text = bench.run(
        "from-file",
        "echo $GREETING",
        container={"env": [{"name": "GREETING", "valueFrom": ref}]},
        spec={"initContainers": [init], "volumes": [{"name": "data", "emptyDir": {}}]},
    )
    assert text == "hello you\n"


def test_root_that_does_not_want_to_be_root_waits_with_the_reason(bench: Bench) -> None:
    bench.put("no-root", "true", container={"securityContext": {"runAsNonRoot": True}})
    waiting = bench.waiting("no-root", "CreateContainerConfigError")
    assert "container has runAsNonRoot and image will run as root" in (waiting.message or "")


def test_a_missing_key_waits_with_the_reason(bench: Bench) -> None:
    bench.put(
        "escape",
        "true",
        container={"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(NONE)"}]},
        spec={"volumes": [{"name": "v", "emptyDir": {}}]},
    )
    waiting = bench.waiting("escape", "CreateContainerConfigError")
    assert "missing value for 'NONE'" in (waiting.message or "")


def test_a_link_in_a_volume_never_shows_the_node_to_a_container(bench: Bench) -> None:
    init = {
        "name": "first",
        "image": pod_manifest("x")["spec"]["containers"][0]["image"],
        "command": ["sh", "-c", "ln -s /etc /data/link"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    bench.put(
        "attacker",
        "ls /node",
        container={"volumeMounts": [{"name": "data", "mountPath": "/node", "subPath": "link"}]},
        spec={"initContainers": [init], "volumes": [{"name": "data", "emptyDir": {}}]},
    )
    waiting = bench.waiting("attacker", "CreateContainerConfigError")
    assert "leads out of volume 'data'" in (waiting.message or "")


@pytest.mark.parametrize(
    ("policy", "script", "expected"),
    [
        ("File", "echo said > /dev/termination-log; echo logged; exit 3", "said\n"),
        ("FallbackToLogsOnError", "echo logged; exit 3", "logged\n"),
    ],
)
def test_the_last_words_of_a_container_are_in_its_status(
    bench: Bench, policy: str, script: str, expected: str
) -> None:
    name = f"last-words-{policy.lower()}"
    container, spec = {"terminationMessagePolicy": policy}, {"restartPolicy": "Never"}
    bench.put(name, script, container=container, spec=spec)
    ended = terminated(bench.ended(name))
    assert (ended.exit_code, ended.message) == (3, expected)


def test_what_a_privileged_container_mounts_is_seen_by_its_neighbour(
    bench: Bench,
) -> None:
    watcher = {
        "name": "watcher",
        "image": pod_manifest("x")["spec"]["containers"][0]["image"],
        "command": ["sh", "-c", "while ! cat /shared/inner/file 2>/dev/null; do sleep 0.1; done; sleep 1000"],
        "volumeMounts": [{"name": "s", "mountPath": "/shared", "mountPropagation": "HostToContainer"}],
        "readinessProbe": {"exec": {"command": ["test", "-e", "/shared/inner/file"]}, "periodSeconds": 1},
    }
    script = "mkdir /shared/inner && mount -t tmpfs none /shared/inner && echo seen > /shared/inner/file; sleep 1000"
    manifest = pod_manifest(
        "mounter", command=["sh", "-c", script], spec={"volumes": [{"name": "s", "emptyDir": {}}]}
    )
    main = manifest["spec"]["containers"][0]
    main["securityContext"] = {"privileged": True}
    main["volumeMounts"] = [{"name": "s", "mountPath": "/shared", "mountPropagation": "Bidirectional"}]
    manifest["spec"]["containers"].append(watcher)
    put_manifest(bench.manifests, manifest)
    uid = str(bench.ready("mounter").metadata.uid)
    until(lambda: bench.logs("mounter", "watcher") == "seen\n", "what the neighbour saw")
    assert f"{uid}/volumes/kubernetes.io~empty-dir/s/inner" in Path("/proc/self/mountinfo").read_text()
    bench.remove("mounter")
    assert uid not in Path("/proc/self/mountinfo").read_text()
    assert not (bench.agent.root_dir / "pods" / uid).exists()


def test_a_log_that_grows_is_rotated_and_goes_on(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "containerLogMaxSize: 20Ki\ncontainerLogMaxFiles: 3\ncontainerLogMonitorInterval: 3s\n"
    )
    bench = make_bench(flags=[f"--config={config}"])
    script = 'i=0; while true; do i=$((i+1)); echo "line $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; sleep 0.005; done'
    bench.put("grower", script)
    bench.ready("grower")
    directory = next(one for one in bench.agent.logs_dir.iterdir() if "grower" in one.name) / "main"
    assert stat.S_IMODE(directory.parent.stat().st_mode) == 0o755

    def names() -> list[str]:
        return sorted(one.name for one in directory.iterdir())

    def between_two_rotations() -> tuple[list[bytes], bytes] | None:
        """Lines of the newest rotated file and the first that came after it."""
        found = names()
        if [name.removeprefix("0.log")[-3:] == ".gz" for name in found] != [False, True, False]:
            return None
        rotated = (directory / found[2]).read_bytes().splitlines()
        present = (directory / "0.log").read_bytes().splitlines(keepends=True)
        is_whole = bool(present) and present[0].endswith(b"\n") and names() == found
        return (rotated, present[0]) if is_whole else None

    rotated, first = until(between_two_rotations, "a packed file, a rotated one and the present one")
    numbers = [int(line.split(b" ")[4]) for line in (*rotated, first)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert bench.logs("grower", tailLines=1).startswith("line ")
