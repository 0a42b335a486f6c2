"""``kubeletx doctor`` beside a real containerd, without an agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kubeletx.cli.main import cli
from kubeletx_testing.lab import PrivateContainerd

SETTINGS = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
kubeletx:
  containerRuntimeEndpoints:
    - container:containerd:{endpoint}
"""


def findings(tmp_path: Path, endpoint: str) -> dict[str, Any]:
    """Return the finding of each check by its name."""
    file = tmp_path / "config.yaml"
    file.write_text(SETTINGS.format(endpoint=endpoint))
    command = ["--root-dir", str(tmp_path), "doctor", "--config", str(file), "-o", "json", "--timeout", "2m"]
    result = CliRunner().invoke(cli, command)
    return {one["check"]: one for one in json.loads(result.stdout)["findings"]}


def test_a_containerd_that_answers_is_well_and_its_network_is_found(
    containerd_a: PrivateContainerd, tmp_path: Path
) -> None:
    found = findings(tmp_path, containerd_a.endpoint)
    # another test of this run may have pulled the sandbox image
    words = (
        "containerd: containerd 1."
        if found["runtimes"]["state"] == "ok"
        else "containerd lacks its sandbox image"
    )
    assert found["runtimes"]["text"].startswith(words)
    assert (found["network"]["state"], str(containerd_a.cni_conf_dir) in found["network"]["text"]) == (
        "ok",
        True,
    )
    assert "free" in found["disk"]["text"]


def test_a_containerd_without_a_socket_is_named(tmp_path: Path) -> None:
    found = findings(tmp_path, f"unix://{tmp_path}/containerd.sock")["runtimes"]
    assert found["state"] == "problem"
    assert f"{tmp_path}/containerd.sock: No such file" in found["text"]
