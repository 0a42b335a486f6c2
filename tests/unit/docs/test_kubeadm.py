"""The page about kubeadm and the unit that it installs say what the program does."""

from __future__ import annotations

import configparser
import re

from kubeletx import __version__
from kubeletx.agent.config.kubelet_words import KUBELET_ROOT
from kubeletx.agent.config.tree import BY_FLAG, BY_KEY
from kubeletx.cli.main import _version
from tests.unit.docs.pages import DOCS, ROOT

PAGE = (DOCS / "kubeadm.md").read_text()
UNIT = (ROOT / "deploy" / "systemd" / "kubelet.service").read_text()
OF_KUBEADM = {"token", "discovery-token-ca-cert-hash", "ignore-preflight-errors", "pod-infra-container-image"}


def test_the_version_on_the_page_is_what_is_printed() -> None:
    assert f"   # kubelet --version\n   {_version(as_kubelet=True)}\n" in PAGE
    assert __version__ in _version(as_kubelet=True)


def test_every_flag_and_field_of_the_page_exists() -> None:
    of_the_command = {"version", "as-kubelet", "config-dir", "root-dir"}
    flags = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", PAGE))
    assert flags - OF_KUBEADM <= set(BY_FLAG) | of_the_command
    for field in ("cgroupDriver", "failCgroupV1", "failSwapOn", "serverTLSBootstrap", "oomScoreAdj"):
        assert f"`{field}" in PAGE
        assert field in BY_KEY


def test_the_unit_takes_what_kubeadm_writes_and_leaves_pods_alone() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(UNIT)
    service = parser["Service"]
    assert service["ExecStart"].split() == [
        "/usr/bin/kubelet",
        "$KUBELET_KUBECONFIG_ARGS",
        "$KUBELET_CONFIG_ARGS",
        "$KUBELET_KUBEADM_ARGS",
        "$KUBELET_EXTRA_ARGS",
    ]
    assert (service["Type"], service["KillMode"], service["Delegate"]) == ("notify", "process", "yes")
    assert "RestartPreventExitStatus" not in service
    files = re.findall(r"^EnvironmentFile=-(.*)$", UNIT, re.MULTILINE)
    assert files == [f"{KUBELET_ROOT}/kubeadm-flags.env", "/etc/default/kubelet"]
    assert f"--config={KUBELET_ROOT}/config.yaml" in UNIT
    assert (
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
        in UNIT
    )
