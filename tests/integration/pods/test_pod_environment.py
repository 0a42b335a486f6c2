"""What a container really finds: environment, mounts, names, limits, rights. Seen from inside, on containerd."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from tests.integration.support.survival import until


class Probe:
    """Starts a pod whose container runs a script to its end, and gives what the script printed."""

    def __init__(self, agent: PrivateAgent, manifests: Path) -> None:
        self.agent = agent
        self._manifests = manifests

    def put(self, name: str, script: str, **parts: Any) -> None:
        spec = {"restartPolicy": "Never", **parts.pop("spec", {})}
        command = ["sh", "-c", script]
        put_manifest(self._manifests, pod_manifest(name, command=command, spec=spec, **parts))

    def run(self, name: str, script: str, **parts: Any) -> str:
        """The log of a script that must succeed."""
        self.put(name, script, **parts)
        pod = self.agent.wait_for(name, has_ended)
        text = self.logs(name)
        assert pod.status.phase == "Succeeded", text
        return text

    def logs(self, name: str, *options: str) -> str:
        answer = self.agent.cli("logs", f"{name}-lab", *options)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def waiting(self, name: str, reason: str) -> str:
        """The message with which a container waits for this reason."""

        def waits(pod: Pod) -> bool:
            return any(
                one.state.waiting and one.state.waiting.reason == reason
                for one in pod.status.container_statuses
            )

        states = [one.state.waiting for one in self.agent.wait_for(name, waits).status.container_statuses]
        return next(one.message or "" for one in states if one is not None)


def has_ended(pod: Pod) -> bool:
    return pod.status.phase in {"Succeeded", "Failed"}


@pytest.fixture
def probe(agent: PrivateAgent, manifests: Path) -> Probe:
    return Probe(agent, manifests)


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_environment_is_expanded_and_knows_pod_node_and_limits(probe: Probe) -> None:
    refs: Mapping[str, dict[str, Any]] = {
        "POD": {"fieldRef": {"fieldPath": "metadata.name"}},
        "IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "LABEL": {"fieldRef": {"fieldPath": "metadata.labels['tier']"}},
        "CPU": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
        "MEMORY": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
    }
    env = [{"name": name, "valueFrom": ref} for name, ref in refs.items()]
    env += [{"name": "ALL", "value": "$(POD)/$(IP) $$(POD) $(NONE)"}]
    text = probe.run(
        "environment",
        "env; hostname -i | sed s/^/REAL=/",
        container={"env": env, "resources": {"limits": {"cpu": "250m", "memory": "64Mi"}}},
        metadata={"labels": {"tier": "front"}},
    )
    found = settings(text)
    assert (found["POD"], found["LABEL"], found["CPU"], found["MEMORY"]) == (
        "environment-lab",
        "front",
        "250",
        "64",
    )
    assert found["IP"] == found["REAL"].strip()
    assert found["ALL"] == f"environment-lab/{found['IP']} $(POD) $(NONE)"


def test_a_container_finds_its_names(probe: Probe) -> None:
    text = probe.run(
        "names",
        "hostname; cat /etc/hosts /etc/resolv.conf",
        spec={
            "hostname": "front",
            "subdomain": "web",
            "hostAliases": [{"ip": "203.0.113.7", "hostnames": ["db", "db.example"]}],
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": ["192.0.2.53"],
                "searches": ["a.example"],
                "options": [{"name": "ndots", "value": "3"}],
            },
        },
    )
    lines = text.splitlines()
    assert lines[:2] == ["front", "# Kubernetes-managed hosts file."]
    assert "203.0.113.7\tdb\tdb.example" in lines
    assert {"nameserver 192.0.2.53", "search a.example", "options ndots:3"} <= set(lines)


def test_volumes_are_where_they_should_be(probe: Probe, tmp_path: Path) -> None:
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
    text = probe.run(
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


def test_a_value_comes_from_a_file_of_an_init_container(probe: Probe) -> None:
    init = {
        "name": "first",
        "image": pod_manifest("x")["spec"]["containers"][0]["image"],
        "command": ["sh", "-c", "echo \"GREETING='hello you'\" > /data/app.env"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    ref = {"fileKeyRef": {"volumeName": "data", "path": "app.env", "key": "GREETING"}}
    text = probe.run(
        "from-file",
        "echo $GREETING",
        container={"env": [{"name": "GREETING", "valueFrom": ref}]},
        spec={"initContainers": [init], "volumes": [{"name": "data", "emptyDir": {}}]},
    )
    assert text == "hello you\n"


def test_a_user_has_no_more_rights_than_its_pod_gives(probe: Probe) -> None:
    script = """
        id -u; id -g; id -G
        grep -E 'NoNewPrivs|CapBnd|Seccomp:' /proc/self/status
        stat -c %g:%a /data; touch /data/x; stat -c %g /data/x
        touch /x 2>/dev/null || echo read-only
    """
    text = probe.run(
        "rights",
        script,
        container={
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "securityContext": {
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "runAsNonRoot": True,
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
        spec={
            "securityContext": {"fsGroup": 3000, "supplementalGroups": [4000]},
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    )
    lines = text.splitlines()
    assert lines[:2] == ["1000", "1000"]
    assert {"1000", "3000", "4000"} <= set(lines[2].split())
    status = dict(line.split(":\t") for line in lines[3:6])
    assert (int(status["CapBnd"], 16), status["NoNewPrivs"], status["Seccomp"]) == (0, "1", "2")
    assert lines[6:] == ["3000:2777", "3000", "read-only"]


def test_root_that_does_not_want_to_be_root_waits_with_the_reason(probe: Probe) -> None:
    probe.put("no-root", "true", container={"securityContext": {"runAsNonRoot": True}})
    message = probe.waiting("no-root", "CreateContainerConfigError")
    assert "container has runAsNonRoot and image will run as root" in message


def test_a_missing_key_waits_with_the_reason(probe: Probe) -> None:
    probe.put(
        "escape",
        "true",
        container={"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(NONE)"}]},
        spec={"volumes": [{"name": "v", "emptyDir": {}}]},
    )
    assert "missing value for 'NONE'" in probe.waiting("escape", "CreateContainerConfigError")


def test_a_link_in_a_volume_never_shows_the_node_to_a_container(probe: Probe) -> None:
    init = {
        "name": "first",
        "image": pod_manifest("x")["spec"]["containers"][0]["image"],
        "command": ["sh", "-c", "ln -s /etc /data/link"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    probe.put(
        "attacker",
        "ls /node",
        container={"volumeMounts": [{"name": "data", "mountPath": "/node", "subPath": "link"}]},
        spec={"initContainers": [init], "volumes": [{"name": "data", "emptyDir": {}}]},
    )
    assert "leads out of volume 'data'" in probe.waiting("attacker", "CreateContainerConfigError")


@pytest.mark.parametrize(
    ("policy", "script", "expected"),
    [
        ("File", "echo said > /dev/termination-log; echo logged; exit 3", "said\n"),
        ("FallbackToLogsOnError", "echo logged; exit 3", "logged\n"),
    ],
)
def test_the_last_words_of_a_container_are_in_its_status(
    probe: Probe, policy: str, script: str, expected: str
) -> None:
    probe.put("last-words", script, container={"terminationMessagePolicy": policy})
    pod = probe.agent.wait_for("last-words", has_ended)
    ended = pod.status.container_statuses[0].state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.message) == (3, expected)


def test_what_a_privileged_container_mounts_is_seen_by_its_neighbour(
    probe: Probe, agent: PrivateAgent, manifests: Path
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
    path = put_manifest(manifests, manifest)
    uid = str(agent.wait_for("mounter").metadata.uid)
    until(lambda: probe.logs("mounter", "-c", "watcher") == "seen\n", "what the neighbour saw")
    assert f"{uid}/volumes/kubernetes.io~empty-dir/s/inner" in Path("/proc/self/mountinfo").read_text()
    path.unlink()
    agent.wait_gone("mounter")
    assert uid not in Path("/proc/self/mountinfo").read_text()
    assert not (agent.root_dir / "pods" / uid).exists()


def test_logs_are_shown_as_asked_and_rotated(
    make_agent: Callable[..., PrivateAgent], manifests: Path
) -> None:
    agent = make_agent()
    agent.start()
    probe = Probe(agent, manifests)
    probe.put("talker", "for i in 1 2 3; do echo line $i; done; echo oops >&2; sleep 1000")
    agent.wait_for("talker")
    until(lambda: probe.logs("talker").count("\n") == 4, "four lines")
    assert sorted(probe.logs("talker").splitlines()) == ["line 1", "line 2", "line 3", "oops"]
    assert len(probe.logs("talker", "--tail", "2").splitlines()) == 2
    first = probe.logs("talker", "--timestamps", "--tail", "1")
    assert first.split(" ", 1)[0].endswith("Z")
    directories = [one for one in agent.logs_dir.iterdir() if "talker" in one.name]
    assert [stat.S_IMODE(one.stat().st_mode) for one in directories] == [0o755]


def test_a_log_that_grows_is_rotated_and_goes_on(
    make_agent: Callable[..., PrivateAgent], manifests: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "containerLogMaxSize: 20Ki\ncontainerLogMaxFiles: 3\ncontainerLogMonitorInterval: 3s\n"
    )
    agent = make_agent(flags=[f"--config={config}"])
    agent.start()
    probe = Probe(agent, manifests)
    script = 'i=0; while true; do i=$((i+1)); echo "line $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; sleep 0.005; done'
    probe.put("grower", script)
    agent.wait_for("grower")
    directory = next(one for one in agent.logs_dir.iterdir() if "grower" in one.name) / "main"

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
    assert probe.logs("grower", "--tail", "1").startswith("line ")


def test_limits_of_a_container_are_those_of_its_cgroup(probe: Probe) -> None:
    script = """
        cd /sys/fs/cgroup
        cat memory/memory.limit_in_bytes 2>/dev/null || cat memory.max
        cat cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 cpu.max
        cat /proc/self/oom_score_adj
    """
    resources = {"limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}}
    memory, quota, score = probe.run("limits", script, container={"resources": resources}).split()
    assert (int(memory), int(quota)) == (64 << 20, 25_000)
    assert 3 <= int(score) <= 999
