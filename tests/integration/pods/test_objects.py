"""Config maps, secrets and claims without a cluster, in pods on a real containerd."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import yaml

from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from tests.integration.support.bench import DEADLINE, Bench, until

PASSWORD = "correct-horse-battery"
OBJECTS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {index.html: PAGE}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: PASSWORD}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
""".replace("PASSWORD", PASSWORD)
SCRIPT = 'echo "$PASSWORD" > /data/password; trap exit TERM; while :; do sleep 0.1; done'
SPEC = {
    "terminationGracePeriodSeconds": 5,
    "volumes": [
        {"name": "page", "configMap": {"name": "web"}},
        {"name": "disk", "persistentVolumeClaim": {"claimName": "data"}},
    ],
}
CONTAINER = {
    "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}],
    "volumeMounts": [{"name": "page", "mountPath": "/page"}, {"name": "disk", "mountPath": "/data"}],
}


def test_a_pod_uses_objects_of_the_node(
    make_agent: Callable[..., PrivateAgent], manifests: Path, tmp_path: Path
) -> None:
    agent = make_agent()
    agent.start()
    bench = Bench(agent, manifests)

    def run(*words: str) -> str:
        done = agent.cli(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pod = pod_manifest("web", command=["sh", "-c", SCRIPT], container=CONTAINER, spec=SPEC)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    file = tmp_path / "web.yaml"
    text = OBJECTS + yaml.safe_dump(deployment)
    file.write_text(text.replace("PAGE", "one"))
    assert run("apply", "-f", str(file)).splitlines() == [
        "configmap/web created",
        "secret/login created",
        "persistentvolumeclaim/data created",
        "pod/web created",
    ]
    agent.wait_for("web")
    written = agent.root_dir / "claims" / "default" / "data" / "password"
    until(lambda: written.exists() and written.read_text().strip() == PASSWORD, "variable in the claim")
    assert run("exec", "web", "--", "cat", "/page/index.html") == "one"

    file.write_text(text.replace("PAGE", "two"))
    assert "configmap/web configured" in run("apply", "-f", str(file))
    until(lambda: run("exec", "web", "--", "cat", "/page/index.html") == "two", "the page is new")

    agent.restart()
    agent.wait_for("web")
    shown = run("get", "secret", "-o", "yaml") + run("describe", "secret", "login")
    assert f"<{len(PASSWORD)} bytes>" in shown
    assert PASSWORD not in shown + agent.log_path.read_text()
    stored = list((agent.root_dir / "applied" / "objects").iterdir())
    assert len(stored) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in stored} == {0o600}
    assert "is used by pod default/web" in agent.cli("delete", "pvc", "data").stderr

    late = {"volumes": [{"name": "page", "configMap": {"name": "late"}}]}
    put_manifest(manifests, pod_manifest("waits", spec=late))
    bench.event("waits", "FailedMount", 'configmap "late" not found; create it')
    file_of_late = tmp_path / "late.yaml"
    file_of_late.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: late}}")
    run("apply", "-f", str(file_of_late))
    bench.ready("waits", seconds=DEADLINE)

    run("delete", "-f", str(file))
    assert run("get", "cm,secret,pvc", "-o", "name").split() == ["configmap/late"]
    assert written.read_text().strip() == PASSWORD
