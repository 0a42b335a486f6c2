"""Files of deploy/storage fit the program and each other."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from kubeletx_flexvolume.agent.main import main
from kubeletx_flexvolume.attachments.definitions import NAMESPACE, rights

from kubeletx.kube.client import load_kubeconfig

DEPLOY = Path(__file__).resolve().parents[4] / "deploy" / "storage"
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")


def options(command: str) -> set[str]:
    """Long options of a command."""
    found = main.commands[command]
    return {
        text.removeprefix("--")
        for option in found.params
        if isinstance(option, click.Option)
        for text in (*option.opts, *option.secondary_opts)
    }


def document(kind: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "agent.yaml").read_text())
    (found,) = [one for one in documents if one["kind"] == kind]
    return dict(found)


def container() -> dict[str, Any]:
    (found,) = document("DaemonSet")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_every_option_exists() -> None:
    text = (DEPLOY / "agent.yaml").read_text() + (DEPLOY / "kubeletx-storage.service").read_text()
    given = set(FLAG.findall(text)) - {"ready"}
    assert given - options("agent") == set()
    assert "ready" in options("status")
    assert container()["command"] == ["kubeletx-flexvolume", "agent"]
    assert container()["readinessProbe"]["exec"]["command"] == ["kubeletx-flexvolume", "status", "--ready"]


def test_the_pods_have_the_identity_with_the_rights() -> None:
    account = next(one for one in rights() if one["kind"] == "ServiceAccount")
    assert account["metadata"]["namespace"] == NAMESPACE
    daemon_set = document("DaemonSet")
    assert daemon_set["metadata"]["namespace"] == NAMESPACE
    assert daemon_set["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert document("ConfigMap")["metadata"]["namespace"] == NAMESPACE


def test_the_pods_reach_the_node() -> None:
    pod = document("DaemonSet")["spec"]["template"]["spec"]
    assert (pod["hostPID"], pod["hostNetwork"]) == (True, True)
    assert container()["securityContext"] == {"privileged": True}
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounted = {one["mountPath"]: volumes[one["name"]] for one in container()["volumeMounts"]}
    assert {path for path, one in mounted.items() if "hostPath" in one} == {
        "/dev",
        "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
        "/var/lib/kubeletx-storage",
        "/var/lib/kubeletx-storage/images",
    }
    assert all(one["hostPath"]["path"] == path for path, one in mounted.items() if "hostPath" in one)


def test_the_kubeconfig_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "storage.kubeconfig"
    path.write_text(document("ConfigMap")["data"]["storage.kubeconfig"])
    access = load_kubeconfig(path)
    assert (access.server, access.token_file is not None) == ("https://kubernetes.default.svc", True)


def test_the_service_is_notified_and_leaves_volumes_alone() -> None:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((DEPLOY / "kubeletx-storage.service").read_text())
    service = parser["Service"]
    assert (service["Type"], service["KillMode"], service["RestartPreventExitStatus"]) == (
        "notify",
        "process",
        "2",
    )
    assert service["ExecStart"].split()[:2] == ["/opt/kubeletx/bin/kubeletx-flexvolume", "agent"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_service(tmp_path: Path) -> None:
    text = (DEPLOY / "kubeletx-storage.service").read_text()
    unit = tmp_path / "kubeletx-storage.service"
    unit.write_text(text.replace("/opt/kubeletx/bin/kubeletx-flexvolume", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_daemon_set_selects_its_nodes_and_mounts_what_it_defines() -> None:
    pod = document("DaemonSet")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    defined = {one["name"] for one in pod["volumes"]}
    assert {one["name"] for one in container()["volumeMounts"]} == defined
    pools = [text.partition("=")[2] for text in container()["args"] if text.startswith("--pool=")]
    mounted = {one["mountPath"] for one in container()["volumeMounts"]}
    assert [text.partition("=")[2] in mounted for text in pools] == [True]
