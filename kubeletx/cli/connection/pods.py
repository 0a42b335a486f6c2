"""The fields of pods that most commands use: a decoder of all fields of `Pod` takes 20 ms of a command's start."""

from __future__ import annotations

from typing import Any

from kubeletx.kube.types.meta import ApiStruct, ObjectMeta
from kubeletx.kube.types.status import PodStatus


class BriefContainer(ApiStruct, frozen=True, kw_only=True):
    """Name and restart policy of a container."""

    name: str = ""
    restart_policy: str | None = None


class BriefSpec(ApiStruct, frozen=True, kw_only=True):
    """Containers of a pod, and what field selectors select by."""

    init_containers: tuple[BriefContainer, ...] = ()
    containers: tuple[BriefContainer, ...] = ()
    ephemeral_containers: tuple[BriefContainer, ...] = ()
    virtual_machine: dict[str, Any] | None = None
    node_name: str | None = None
    restart_policy: str | None = None
    scheduler_name: str | None = None
    service_account_name: str | None = None


class BriefPod(ApiStruct, frozen=True, kw_only=True):
    """A pod with some fields of its spec."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BriefSpec = BriefSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace
