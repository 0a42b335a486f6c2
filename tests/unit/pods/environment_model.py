"""A node, pods from dicts, and blocking work done right here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kubeletx.kube.types.core import Container, Pod
from kubeletx.pods.model.node_context import NodeContext

T = TypeVar("T")

RESOLV_CONF = """\
# a comment
; another one
search ignored.example
nameserver 192.0.2.53
nameserver 192.0.2.54
search corp.example. lan
options timeout:1
options ndots:2 edns0
"""


def make_node(files: dict[str, str] | None = None, **changes: Any) -> NodeContext:
    """A node with two CPUs and 8 GiB that reads its files from a dict."""
    texts = {"/etc/resolv.conf": RESOLV_CONF, "/etc/hosts": "127.0.0.1 localhost\n", **(files or {})}

    def read(path: Path) -> str:
        if str(path) not in texts:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return texts[str(path)]

    return NodeContext(
        **{
            "agent_id": "agent-1",
            "node_name": "node-1",
            "root_dir": Path("/root-dir"),
            "host_ips": ("192.0.2.1",),
            "allocatable": {"cpu": 2000, "memory": 8 << 30},
            "memory_capacity_bytes": 8 << 30,
            "read_file": read,
            **changes,
        }
    )


def make_pod(spec: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    """A pod in namespace shop, named web, with uid u1 and one container c unless told otherwise."""
    meta = {"name": "web", "namespace": "shop", "uid": "u1", **metadata}
    return msgspec.convert(
        {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "app"}], **(spec or {})}}, Pod
    )


def with_container(container: dict[str, Any], **spec: Any) -> tuple[Pod, Container]:
    """A pod and its first container."""
    pod = make_pod({"containers": [{"name": "c", "image": "app", **container}], **spec})
    return pod, pod.spec.containers[0]


def append(path: Path, data: bytes) -> None:
    """What a unit or its runtime writes."""
    with path.open("ab") as file:
        file.write(data)


async def inline(function: Callable[..., T], *args: Any) -> T:
    """Blocking work, right here."""
    return function(*args)
