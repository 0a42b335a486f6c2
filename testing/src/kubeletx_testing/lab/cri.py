"""Blocking CRI calls, with which tests and scripts examine a containerd without the agent.

Example::

    with CriCalls(containerd.endpoint) as cri:
        cri.pods()                        # names of pods with a ready sandbox
        cri.call("ContainerStatus", container_id=...)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import grpc

from kubeletx.cri.stubs import runtime_v1_pb2 as pb

from .images import REGISTRY_NAME
from .process import LabError

_REMOVAL_SECONDS: Final = 30.0
_IMAGE_METHODS: Final = frozenset({"ListImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo"})


class CriCalls:
    """A blocking CRI client for one endpoint; the context manager closes its connection."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: ``unix://`` URL of the CRI socket."""
        self._endpoint = endpoint
        self._channel = grpc.insecure_channel(endpoint, options=[("grpc.enable_http_proxy", 0)])

    def call(self, method: str, *, timeout_seconds: float = 30, **fields: Any) -> Any:
        """Call a CRI method and return the response message. Raises LabError if the call fails.

        `fields`: fields of the request message.
        """
        service = "ImageService" if method in _IMAGE_METHODS else "RuntimeService"
        request = getattr(pb, f"{method}Request")(**fields)
        call = self._channel.unary_unary(
            f"/runtime.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(pb, f"{method}Response").FromString,
        )
        try:
            return call(request, timeout=timeout_seconds)
        except grpc.RpcError as err:
            raise LabError(f"{method} at {self._endpoint}: {err}") from err

    def sandboxes(self, *, ready_only: bool = False) -> list[Any]:
        """Return all sandboxes, oldest first. `ready_only`: only those in the state ready."""
        items = self.call("ListPodSandbox").items
        wanted = [item for item in items if not ready_only or item.state == pb.SANDBOX_READY]
        return sorted(wanted, key=lambda sandbox: int(sandbox.created_at))

    def pods(self) -> list[str]:
        """Return the names of pods with a ready sandbox, sorted. A pod with two ready sandboxes is listed twice."""
        return sorted(sandbox.metadata.name for sandbox in self.sandboxes(ready_only=True))

    def containers(self, *, pod_uid: str = "") -> list[Any]:
        """Return all containers, oldest first. `pod_uid`: only those of this pod; empty: of all pods."""
        selector = {"io.kubernetes.pod.uid": pod_uid} if pod_uid else {}
        items = self.call("ListContainers", filter=pb.ContainerFilter(label_selector=selector)).containers
        return sorted(items, key=lambda container: int(container.created_at))

    def remove_all(self, *, keep: Callable[[Any], bool] = lambda _one: False) -> None:
        """Stop and remove every sandbox with its containers, except those for which `keep` returns True.

        containerd refuses the removal while it starts a container, so failures are retried for 30 seconds.
        """
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while wanted := [sandbox for sandbox in self.sandboxes() if not keep(sandbox)]:
            try:
                for sandbox in wanted:
                    self.call("StopPodSandbox", pod_sandbox_id=sandbox.id)
                    self.call("RemovePodSandbox", pod_sandbox_id=sandbox.id)
            except LabError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def remove_foreign_images(self) -> None:
        """Remove images that also have a name in another registry than the lab's.

        For such an image, the status of a pod may show the other name.
        """
        for image in self.call("ListImages").images:
            if any(not tag.startswith(f"{REGISTRY_NAME}/") for tag in image.repo_tags):
                self.call("RemoveImage", image=pb.ImageSpec(image=image.id))

    def __enter__(self) -> CriCalls:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._channel.close()
