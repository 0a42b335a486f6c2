"""Objects that the fake agent shows in tests of commands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from click.testing import Result

from kubeletx.api import names
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec, PodStatus
from kubeletx.server.views import RuntimeView

Run = Callable[..., Result]

T0 = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

CONFIG_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: web, image: IMAGE}]}
"""


def pod(name: str = "web", containers: tuple[str, ...] = ("web",)) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            annotations={names.BOUND_RUNTIME: "one"},
            labels={"a": "1"},
        ),
        spec=PodSpec(
            containers=tuple(Container(name=c, image="busybox") for c in containers), node_name="node-1"
        ),
        status=PodStatus(phase="Running", start_time=T0),
    )


def runtime(name: str = "one", pods: int = 0) -> RuntimeView:
    return RuntimeView(
        name=name,
        workload_type="container",
        kind="containerd",
        url="unix:///a",
        status="Ready",
        since=T0,
        pods=pods,
    )
