"""A remedy runs as a real container: its Job's pod is run by an agent that is another node of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx.remedy.main import NAMESPACE
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.lab import PrivateAgent, image_ref
from kubeletx_testing.waiting import block_until
from tests.integration.support.clusters import ApiServer, ClusterNode, cluster_agent, running_api
from tests.integration.support.remedy_lab import RemedyLab

Json = dict[str, Any]
REPAIR = f"""
apiVersion: node-remedy/v1alpha
kind: Configuration
thresholdConfigs:
- nodeConditionType: Ready
  nodeConditionStatus: false
  nodeConditionPeriod: 1s
  remedy1: {{name: repair, clean-resource: true}}
remedyConfigs:
- name: repair
  podTemplate:
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: {image_ref("busybox")}
        command: [/bin/grep, '"node":{{"name":"WANTED"']
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    yield from running_api("double", tmp_path / "api")


@pytest.fixture
def cluster(api: ApiServerDouble, tmp_path: Path) -> Iterator[RemedyLab]:
    made = RemedyLab(api, tmp_path)
    yield made
    made.end()


def run_jobs(node: ClusterNode) -> None:
    """Do what the Job controller and the scheduler do now: make the Job's pod on this node, and report its end."""
    for job in node.admin.list("jobs", NAMESPACE)["items"]:
        name, template = job["metadata"]["name"], job["spec"]["template"]
        pods = [one for one in node.admin.list("pods", NAMESPACE)["items"] if one["metadata"]["name"] == name]
        if not pods:
            spec = {**template["spec"], "nodeName": node.name}
            node.admin.create("pods", {"metadata": {**template["metadata"], "name": name}, "spec": spec}, NAMESPACE)  # fmt: skip
            continue
        end = {"Succeeded": "Complete", "Failed": "Failed"}.get(pods[0]["status"].get("phase", ""))
        if end is None or job["status"].get("conditions"):
            continue
        now = job["metadata"]["creationTimestamp"]
        first = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[end]
        conditions = [{"type": one, "status": "True", "lastTransitionTime": now} for one in (first, end)]
        status: Json = {"conditions": conditions, "startTime": now}
        if end == "Complete":
            status |= {"completionTime": now, "succeeded": 1}
        node.admin.patch("jobs", name, {"status": status}, namespace=NAMESPACE, subresource="status")


def test_a_remedy_runs_in_a_container_of_another_node_and_reads_the_description_of_the_sick_one(
    cluster: RemedyLab, api: ApiServerDouble, make_agent: Callable[..., PrivateAgent]
) -> None:
    node = cluster_agent(api, make_agent, manifest_dir=None)
    for name in ("sick-1", "sick-2", "well-1", "well-2"):
        cluster.add_node(name)
        cluster.add_pod(f"on-{name}", name)
    cluster.configuration(REPAIR.replace("WANTED", "sick-1"))
    cluster.start()

    def has(name: str, state: str) -> bool:
        run_jobs(node)
        return cluster.state(name) == state

    cluster.ready("sick-1", "Unknown")
    block_until(lambda: has("sick-1", "Isolation/Done") and cluster.pods("sick-1") == [])
    cluster.ready("sick-2", "Unknown")
    block_until(lambda: has("sick-2", "Isolation/Error") or cluster.fence("sick-2").get("retries", 0) > 0)
    assert cluster.pods("sick-2") == ["on-sick-2"]
    cluster.ready("sick-1", "True", boot_id="boot 2")
    block_until(lambda: has("sick-1", "Recovery/Final"))
