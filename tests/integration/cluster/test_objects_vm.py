"""Machines of a cluster get the same volumes as containers: as directories in the guest, which follow their objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import names
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.lab import Lab, PrivateAgent
from kubeletx_testing.lab.machines import SHARING_KERNELS, load_machine_image
from tests.integration.support.clusters import ClusterNode, cluster_agent
from tests.integration.support.survival import until
from tests.integration.support.vm_pods import ask, make_machines

SPACE = "default"
SCRIPT = """#!/bin/sh
cat /config/colour /secret/password /api/namespace /api/token > /tmp/read 2>&1
mv /tmp/read /www/read
until grep -q red /config/colour; do sleep 1; done
echo red > /tmp/news
mv /tmp/news /www/news
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    with ApiServerDouble(tmp_path / "api") as double:
        yield double


@pytest.mark.parametrize("shares", ["virtiofs", "9p"])
def test_a_machine_reads_its_objects_and_their_news(
    shares: str, api: ApiServerDouble, make_agent: Callable[..., PrivateAgent], lab: Lab, tmp_path: Path
) -> None:
    def make_node(**arguments: Any) -> Any:
        return cluster_agent(api, make_agent, manifest_dir=None, **arguments)

    node: ClusterNode = make_machines(make_node, lab, tmp_path, shares=shares)  # type: ignore[assignment]
    for plural, name, value in (
        ("configmaps", "settings", {"data": {"colour": "blue\n"}}),
        ("secrets", "key", {"stringData": {"password": "s3cret\n"}}),
    ):
        api.admin.create(plural, {"metadata": {"name": name}, **value}, SPACE)
    field = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources = [{"serviceAccountToken": {"path": "token"}}, {"downwardAPI": {"items": [field]}}]
    mounts = [{"name": one, "mountPath": f"/{one}", "readOnly": True} for one in ("config", "secret", "api")]
    node.apply(
        "vm",
        annotations={names.WORKLOAD_TYPE: "vm", names.VM_SCRIPT: SCRIPT},
        container={
            "image": str(load_machine_image(kernel=SHARING_KERNELS[shares])),
            "command": [],
            "resources": {"limits": {"cpu": "1", "memory": "192Mi"}},
            "volumeMounts": mounts,
        },
        volumes=[
            {"name": "config", "configMap": {"name": "settings"}},
            {"name": "secret", "secret": {"secretName": "key"}},
            {"name": "api", "projected": {"sources": sources}},
        ],
    )
    pod = node.wait("vm", lambda one: one["status"].get("podIP"), "an address")
    read = ask(pod["status"]["podIP"], "/read").split("\n")
    assert read[:2] == ["blue", "s3cret"]
    assert read[2].startswith(f"{SPACE}eyJ")
    api.admin.patch("configmaps", "settings", {"data": {"colour": "red\n"}}, SPACE)
    assert ask(pod["status"]["podIP"], "/news") == "red\n"
    directory = node.agent.root_dir / "pods" / pod["metadata"]["uid"]
    api.admin.delete("pods", "vm", SPACE)
    node.wait_gone("vm")
    until(lambda: not directory.exists(), "the machine's directory gone")
