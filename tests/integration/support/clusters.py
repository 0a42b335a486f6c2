"""What the tests of a node in a cluster share: an API server, an agent that is a node of it, and looks at both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, ApiServerDouble, StatusError
from kubeletx_testing.lab import PrivateAgent, image_ref
from kubeletx_testing.lab.kube_apiserver import KubeApiServer, missing_binaries
from tests.integration.support.survival import until

Json = dict[str, Any]
ApiServer = ApiServerDouble | KubeApiServer
KUBECTL = "application/strategic-merge-patch+json"
API_SERVERS = ("double", pytest.param("kube-apiserver", marks=pytest.mark.apiserver))
"""What a fixture is parametrised with whose value comes from `running_api`."""

_NUMBERS = itertools.count(1)


def running_api(kind: str, directory: Path) -> Iterator[ApiServer]:
    """An API server, ended afterwards; the test is skipped where there is no real one."""
    if kind == "double":
        with ApiServerDouble(directory) as double:
            yield double
        return
    if why := missing_binaries():
        # No package has a kube-apiserver to install. What does not need a real one is shown on the double too.
        pytest.skip(why)
    with KubeApiServer(directory) as real:
        yield real


def restore_point(api: ApiServer) -> Callable[[], None]:
    """Call it to set the API server back to this moment."""
    if isinstance(api, ApiServerDouble):
        copy = api.backup()
        return lambda: api.restore(copy)
    files = api.backup()
    return lambda: api.restore(files)


class ClusterNode:
    """An agent, its API server, and what kubectl's user would do."""

    def __init__(self, api: ApiServer, agent: PrivateAgent) -> None:
        self.api = api
        self.agent = agent
        self.name = agent.node_name

    @property
    def admin(self) -> ApiClient:
        """May do everything."""
        return self.api.admin

    def apply(
        self,
        name: str,
        *,
        container: Json | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        """Make a pod of one busybox that sleeps, bound to this node."""
        main = {
            "name": "main",
            "image": image_ref("busybox"),
            "command": ["sleep", "10000"],
            **(container or {}),
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {
                "nodeName": self.name,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                "containers": [main],
                **spec,
            },
        }  # fmt: skip
        return self.admin.create("pods", pod, namespace="default")

    def find(self, name: str) -> Json | None:
        """The pod as the API server has it."""
        try:
            return self.admin.get("pods", name, namespace="default")
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    def wait(self, name: str, is_so: Callable[[Json], Any], what: str) -> Json:
        """The pod once it is so in the API."""
        found: list[Json] = []

        def look() -> bool:
            pod = self.find(name)
            if pod is not None and is_so(pod):
                found.append(pod)
            return bool(found)

        until(look, f"{name}: {what}")
        return found[-1]

    def wait_running(self, name: str) -> Json:
        """The pod, Running and Ready in the API."""
        return self.wait(name, is_ready, "Running and Ready in the API")

    def wait_gone(self, name: str) -> None:
        """Neither the API server nor the agent knows it."""
        until(lambda: self.find(name) is None, f"{name} gone from the API")
        self.agent.wait_gone(name)

    def node(self) -> Json | None:
        """The Node object."""
        try:
            return self.admin.get("nodes", self.name)
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    def wait_ready(self) -> Json:
        """The Node once it is Ready."""
        until(lambda: condition(self.node() or {}, "Ready").get("status") == "True", "a Ready node")
        found = self.node()
        assert found is not None
        return found

    def events(self, name: str) -> list[str]:
        """Reasons of the events of a pod."""
        listed = self.admin.list("events", namespace="default")["items"]
        return [one["reason"] for one in listed if one["involvedObject"].get("name") == name]


def cluster_agent(api: ApiServer, make: Callable[..., PrivateAgent], **arguments: Any) -> ClusterNode:
    """A node of the cluster, started and Ready. `make`: fixture `make_agent`, or the like."""
    name = f"node-{next(_NUMBERS)}"
    ready_namespace(api.admin)
    flags = [f"--kubeconfig={api.node_kubeconfig(name)}", *arguments.pop("flags", ())]
    agent = make(name=name, node_name=name, flags=flags, **arguments)
    agent.start()
    node = ClusterNode(api, agent)
    node.wait_ready()
    return node


def ready_namespace(admin: ApiClient) -> None:
    """What the controller manager gives to a namespace, where none runs."""
    try:
        admin.create("serviceaccounts", {"metadata": {"name": "default"}}, namespace="default")
    except StatusError as error:
        if error.code != 409:
            raise


def is_ready(pod: Json) -> bool:
    """Running, and its condition Ready is True."""
    return pod["status"].get("phase") == "Running" and condition(pod, "Ready").get("status") == "True"


def condition(value: Json, type_: str) -> Json:
    """A condition of a pod or node; empty if there is none."""
    conditions = value.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == type_), {})


def main_status(pod: Json) -> Json:
    """Status of the pod's container ``main``."""
    found: Json = next(one for one in pod["status"]["containerStatuses"] if one["name"] == "main")
    return found
