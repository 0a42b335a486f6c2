"""What pods of a cluster refer to: config maps, secrets, tokens, claims, services, runtime classes, pull secrets.

Each test runs against the double and, where its binaries are, against a real kube-apiserver.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.apiserver import StatusError
from kubeletx_testing.lab import Lab, PrivateAgent
from kubeletx_testing.lab.images import load_images
from kubeletx_testing.lab.registry import PASSWORD, USERNAME, PrivateRegistry
from tests.integration.support.clusters import (
    ClusterNode,
    main_status,
)
from tests.integration.support.survival import until

MakeAgent = Callable[..., PrivateAgent]
SPACE = "default"
SECRET = "a-word-that-nobody-may-read"


def make(node: ClusterNode, plural: str, name: str, namespace: str = SPACE, **value: Any) -> dict[str, Any]:
    """The object again, whatever an earlier test left."""
    remove(node, plural, name, namespace)
    return node.admin.create(plural, {"metadata": {"name": name}, **value}, namespace)


def remove(node: ClusterNode, plural: str, name: str, namespace: str = SPACE) -> None:
    try:
        node.admin.delete(plural, name, namespace)
    except StatusError as error:
        if error.code != 404:
            raise
        return
    until(lambda: not exists(node, plural, name, namespace), f"{plural} {name} gone")


def exists(node: ClusterNode, plural: str, name: str, namespace: str) -> bool:
    try:
        node.admin.get(plural, name, namespace)
    except StatusError as error:
        return error.code != 404
    return True


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def inside(node: ClusterNode, name: str, command: str) -> str:
    """What a command prints in the pod's container."""
    done = node.agent.cli("exec", name, "--", "sh", "-c", command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def waiting(node: ClusterNode, name: str, reason: str) -> dict[str, Any]:
    pod = node.wait(
        name,
        lambda one: (
            one["status"].get("containerStatuses")
            and main_status(one)["state"].get("waiting", {}).get("reason") == reason
        ),
        reason,
    )
    found: dict[str, Any] = main_status(pod)["state"]["waiting"]
    return found


def test_a_pod_waits_for_its_objects_and_gets_them_as_files_and_variables(node: ClusterNode) -> None:
    remove(node, "configmaps", "settings")
    make(node, "secrets", "key", data={"password": encoded(SECRET)})
    node.apply(
        "web",
        container={
            "env": [{"name": "PW", "valueFrom": {"secretKeyRef": {"name": "key", "key": "password"}}}],
            "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "S_"}],
            "volumeMounts": [
                {"name": "m", "mountPath": "/m"},
                {"name": "s", "mountPath": "/s"},
                {"name": "p", "mountPath": "/p"},
            ],
        },
        securityContext={"fsGroup": 4242},
        volumes=[
            {"name": "m", "configMap": {"name": "settings", "defaultMode": 0o400}},
            {"name": "s", "secret": {"secretName": "key", "items": [{"key": "password", "path": "a/b"}]}},
            {
                "name": "p",
                "projected": {
                    "sources": [
                        {"configMap": {"name": "settings", "items": [{"key": "colour", "path": "c"}]}},
                        {"configMap": {"name": "absent", "optional": True}},
                        {
                            "downwardAPI": {
                                "items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]
                            }
                        },
                    ]
                },
            },
        ],
    )
    until(lambda: "FailedMount" in node.events("web"), "an event of the missing config map")
    reported = 'MountVolume.SetUp failed for volume "m" : configmap "settings" not found'
    assert reported in waiting(node, "web", "ContainerCreating")["message"]
    assert (node.find("web") or {})["status"]["phase"] == "Pending"
    make(node, "configmaps", "settings", data={"colour": "blue"})
    pod = node.wait_running("web")
    assert inside(node, "web", "echo $PW $S_colour; cat /m/colour /s/a/b /p/c /p/n").split("\n") == [
        f"{SECRET} blue",
        f"blue{SECRET}blueweb",
    ]
    assert inside(node, "web", "stat -L -c '%a %g' /m/colour").split() == ["440", "4242"]
    assert inside(node, "web", "stat -f -c %T /s").strip() == "tmpfs"
    assert inside(node, "web", "readlink /m/colour").strip() == "..data/colour"
    directory = node.agent.root_dir / "pods" / pod["metadata"]["uid"]
    node.admin.delete("pods", "web", SPACE)
    node.wait_gone("web")
    assert not directory.exists()
    shown = node.agent.log_path.read_text() + json.dumps(node.admin.list("events", SPACE))
    assert SECRET not in shown
    assert all(SECRET.encode() not in path.read_bytes() for path in node.agent.root_dir.glob("kubeletx.db*"))


def test_files_of_a_running_pod_follow_their_object_but_not_those_of_a_sub_path(node: ClusterNode) -> None:
    make(node, "configmaps", "news", data={"a": "1", "old": "x"})
    node.apply(
        "reader",
        container={
            "volumeMounts": [
                {"name": "m", "mountPath": "/m"},
                {"name": "m", "mountPath": "/single", "subPath": "a"},
            ]
        },
        volumes=[{"name": "m", "configMap": {"name": "news"}}],
    )
    before = main_status(node.wait_running("reader"))
    change = {"data": {"a": "2", "old": None, "new": "y"}}
    node.admin.patch("configmaps", "news", change, SPACE)
    until(lambda: inside(node, "reader", "cat /m/a") == "2", "the new content")
    assert inside(node, "reader", "ls /m").split() == ["a", "new"]
    assert inside(node, "reader", "cat /single") == "1"
    assert main_status(node.wait_running("reader")) == before
    node.admin.delete("pods", "reader", SPACE)
    node.wait_gone("reader")


def test_a_variable_whose_object_is_missing_holds_the_container_until_it_is_there(node: ClusterNode) -> None:
    remove(node, "configmaps", "late")
    reference = {"name": "late", "key": "k"}
    optional = {"name": "never", "key": "k", "optional": True}
    node.apply(
        "holding",
        container={
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": reference}},
                {"name": "B", "valueFrom": {"secretKeyRef": optional}},
            ]
        },
    )
    found = waiting(node, "holding", "CreateContainerConfigError")
    assert 'configmap "late" not found' in found["message"]
    make(node, "configmaps", "late", data={"other": "x"})
    node.wait(
        "holding",
        lambda one: (
            f"couldn't find key k in ConfigMap {SPACE}/late"
            in main_status(one)["state"].get("waiting", {}).get("message", "")
        ),
        "the message of the missing key",
    )
    node.admin.patch("configmaps", "late", {"data": {"k": "v"}}, SPACE)
    node.wait_running("holding")
    assert inside(node, "holding", "echo $A-$B").strip() == "v-"


def test_the_volume_of_the_service_account_lets_a_pod_speak_to_the_api(node: ClusterNode) -> None:
    make(node, "configmaps", "kube-root-ca.crt", data={"ca.crt": "CERTIFICATE"})
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    node.apply(
        "caller",
        container={"volumeMounts": [{"name": "api", "mountPath": "/api"}]},
        serviceAccountName="default",
        securityContext={"runAsUser": 1234},
        volumes=[{"name": "api", "projected": {"sources": sources}}],
    )
    pod = node.wait_running("caller")
    token = inside(node, "caller", "cat /api/token")
    status = node.admin.create("tokenreviews", {"spec": {"token": token}})["status"]
    assert status["user"]["username"] == f"system:serviceaccount:{SPACE}:default"
    assert status["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [pod["metadata"]["uid"]]
    assert inside(node, "caller", "cat /api/ca.crt /api/namespace") == f"CERTIFICATE{SPACE}"
    vault = inside(node, "caller", "cat /api/vault").split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(vault + "=="))["aud"] in (["vault"], "vault")
    assert inside(node, "caller", "stat -L -c '%a %u' /api/token").split() == ["600", "1234"]
    assert token not in node.agent.log_path.read_text()


def test_services_are_variables_where_the_pod_needs_links(node: ClusterNode) -> None:
    ports = [{"name": "http", "port": 80}]
    address = {"clusterIP": "10.0.0.77"} if node.api.__class__.__name__ == "ApiServerDouble" else {}
    make(node, "services", "my-web", spec={"ports": ports, **address})
    host = node.admin.get("services", "my-web", SPACE)["spec"]["clusterIP"]
    node.apply("linked")
    node.apply("bare", enableServiceLinks=False)
    for name in ("linked", "bare"):
        node.wait_running(name)
    assert inside(node, "linked", "echo $MY_WEB_SERVICE_HOST $MY_WEB_PORT").split() == [
        host,
        f"tcp://{host}:80",
    ]
    assert inside(node, "bare", "echo $MY_WEB_SERVICE_HOST.").strip() == "."


def bind(node: ClusterNode, path: Path) -> None:
    """Volume ``disk`` and claim ``data``, bound as the controller does it."""
    claim = make(
        node,
        "persistentvolumeclaims",
        "data",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "by-hand",
            "volumeName": "disk",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )
    names = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    make(
        node,
        "persistentvolumes",
        "disk",
        "",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "by-hand",
            "local": {"path": str(path)},
            "claimRef": {"namespace": SPACE, "name": "data", "uid": claim["metadata"]["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [names]}]}},
        },
    )


def lines(node: ClusterNode, beginning: str) -> list[str]:
    """What the metrics say that begins so."""
    return [one for one in node.agent.get("/metrics").decode().splitlines() if one.startswith(beginning)]


def test_a_pod_waits_for_its_claim_and_writes_to_the_volume_behind_it(
    node: ClusterNode, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    bind(node, disk)
    node.apply(
        "store",
        container={
            "command": ["sh", "-c", "echo kept > /d/file; sleep 10000"],
            "volumeMounts": [{"name": "d", "mountPath": "/d"}],
        },
        securityContext={"fsGroup": 4242},
        volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    )
    until(lambda: "FailedMount" in node.events("store"), "an event of the claim that is not bound")
    node.admin.patch("persistentvolumeclaims", "data", {"status": {"phase": "Bound"}}, SPACE, "status")
    node.wait_running("store")
    until((disk / "file").exists, "the pod's file")
    assert disk.stat().st_gid == 4242
    labels = '{namespace="default",persistentvolumeclaim="data"}'
    reported = until(lambda: lines(node, f"kubelet_volume_stats_capacity_bytes{labels} "), "statistics")
    size = os.statvfs(disk)
    assert float(reported[0].split()[-1]) == size.f_blocks * size.f_frsize
    node.agent.restart()
    node.wait_ready()
    until(lambda: lines(node, f"kubelet_volume_stats_capacity_bytes{labels} "), "statistics again")
    events = node.admin.list("events", SPACE)["items"]
    assert not [one for one in events if "node affinity" in one["message"]]
    node.admin.delete("pods", "store", SPACE)
    node.wait_gone("store")
    assert (disk / "file").read_text() == "kept\n"


def test_a_runtime_class_chooses_the_runtime_also_when_it_comes_late(node: ClusterNode) -> None:
    make(node, "runtimeclasses", "second", "", handler="containerd-b")
    make(node, "runtimeclasses", "odd", "", handler="nowhere")
    make(node, "runtimeclasses", "own", "", handler="runc-two")
    node.apply("chosen", runtimeClassName="second")
    node.apply("handled", runtimeClassName="own")
    node.apply("waits", runtimeClassName="odd")
    assert (
        node.wait_running("chosen")["metadata"]["annotations"]["kubeletx.io/bound-runtime"] == "containerd-b"
    )
    assert "nowhere" in waiting(node, "waits", "RuntimeNotFound")["message"]
    make(node, "runtimeclasses", "odd", "", handler="containerd-a")
    for name in ("waits", "handled"):
        pod = node.wait_running(name)
        assert pod["metadata"]["annotations"]["kubeletx.io/bound-runtime"] == "containerd-a"


@pytest.fixture
def private(tmp_path: Path) -> Iterator[PrivateRegistry]:
    """A registry that asks for a password, with one image."""
    with PrivateRegistry(tmp_path / "private", protected=True) as registry:
        registry.push(image for image in load_images() if image.name == "busybox")
        yield registry


def test_pull_secrets_open_a_registry_and_a_missing_one_is_reported(
    node: ClusterNode, private: PrivateRegistry
) -> None:
    word = encoded(f"{USERNAME}:{PASSWORD}")
    config = json.dumps({"auths": {private.address: {"auth": word}}})
    make(
        node,
        "secrets",
        "registry",
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": encoded(config)},
    )
    image = {"image": f"{private.address}/busybox:1", "imagePullPolicy": "Always"}
    node.apply("refused", container=image, imagePullSecrets=[{"name": "never-made"}])
    until(lambda: "FailedToRetrieveImagePullSecret" in node.events("refused"), "the missing secret")
    waiting(node, "refused", "ImagePullBackOff")
    node.apply("allowed", container=image, imagePullSecrets=[{"name": "registry"}])
    node.wait_running("allowed")
    log = node.agent.log_path.read_text()
    assert PASSWORD not in log
    assert word not in log


def test_an_image_that_one_pods_secret_opened_is_closed_to_pods_without_it(
    node: ClusterNode, private: PrivateRegistry
) -> None:
    config = json.dumps({"auths": {private.address: {"auth": encoded(f"{USERNAME}:{PASSWORD}")}}})
    data = {".dockerconfigjson": encoded(config)}
    make(node, "secrets", "tenant", type="kubernetes.io/dockerconfigjson", data=data)
    image = {"image": f"{private.address}/busybox:1", "imagePullPolicy": "IfNotPresent"}
    node.apply("tenant", container=image, imagePullSecrets=[{"name": "tenant"}])
    node.wait_running("tenant")
    for restarted in (False, True):
        if restarted:
            node.agent.stop()
            node.agent.start()
        node.apply("stranger", container=image)
        state = waiting(node, "stranger", "ImagePullBackOff")
        assert "authorization failed" in state["message"] or "401" in state["message"]
        node.apply("never", container={**image, "imagePullPolicy": "Never"})
        assert "credentials verification failed" in waiting(node, "never", "ErrImageNeverPull")["message"]
        for name in ("stranger", "never"):
            node.admin.delete("pods", name, SPACE)
            node.wait_gone(name)
    node.apply("colleague", container=image, imagePullSecrets=[{"name": "tenant"}])
    node.wait_running("colleague")


def test_a_container_starts_again_with_its_objects_while_the_api_server_is_away(
    node: ClusterNode, lab: Lab
) -> None:
    make(node, "configmaps", "known", data={"k": "v"})
    command = "test -e /m/k && sleep 10000"
    node.apply(
        "steady",
        container={
            "command": ["sh", "-c", f"trap 'exit 1' TERM; {command} & wait"],
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "known", "key": "k"}}}],
            "volumeMounts": [{"name": "m", "mountPath": "/m"}],
        },
        volumes=[{"name": "m", "configMap": {"name": "known"}}],
    )
    node.wait_running("steady")
    node.api.stop()
    try:
        node.agent.cli("exec", "steady", "--", "kill", "1")
        node.agent.wait_for(
            "steady",
            lambda pod: (
                pod.status.container_statuses[0].restart_count == 1
                and pod.status.container_statuses[0].state.running is not None
            ),
        )
        assert inside(node, "steady", "echo $A; cat /m/k") == "v\nv"
    finally:
        node.api.start()
    node.admin.patch("configmaps", "known", {"data": {"k": "w"}}, SPACE)
    until(lambda: inside(node, "steady", "cat /m/k") == "w", "what changed after the return")
    node.wait(
        "steady", lambda one: main_status(one)["restartCount"] == 1, "the restart in the API, told afterwards"
    )


def test_an_agent_that_starts_without_the_api_server_leaves_files_as_they_are(node: ClusterNode) -> None:
    make(node, "configmaps", "kept", data={"k": "v"})
    node.apply(
        "calm",
        container={"volumeMounts": [{"name": "m", "mountPath": "/m"}]},
        volumes=[{"name": "m", "configMap": {"name": "kept"}}],
    )
    before = main_status(node.wait_running("calm"))
    node.agent.stop()
    node.api.stop()
    try:
        node.agent.start()
        node.agent.wait_for("calm")
        assert inside(node, "calm", "cat /m/k") == "v"
    finally:
        node.api.start()
    node.admin.patch("configmaps", "kept", {"data": {"k": "w"}}, SPACE)
    until(lambda: inside(node, "calm", "cat /m/k") == "w", "what changed after the return")
    assert main_status(node.wait_running("calm"))["containerID"] == before["containerID"]
