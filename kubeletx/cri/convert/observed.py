"""Converts sandboxes, containers and their statistics from CRI to values of `kubeletx.api`.

CRI's ContainerStatus does not name the sandbox, so the caller passes its id. The pod's UID comes from the metadata of a
sandbox; for a container it comes from the label ``io.kubernetes.pod.uid``.
"""

from __future__ import annotations

from kubeletx.api import (
    PodUid,
    SandboxId,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    UnitId,
    UnitState,
    UnitStats,
    UnitStatus,
    UnitSummary,
    names,
)
from kubeletx.cri.stubs import runtime_v1_pb2 as pb

_SANDBOX_STATES = {
    pb.SANDBOX_READY: SandboxState.READY,
    pb.SANDBOX_NOTREADY: SandboxState.NOT_READY,
}
_UNIT_STATES = {
    pb.CONTAINER_CREATED: UnitState.CREATED,
    pb.CONTAINER_RUNNING: UnitState.RUNNING,
    pb.CONTAINER_EXITED: UnitState.EXITED,
}


def sandbox_summary_from_cri(sandbox: pb.PodSandbox | pb.PodSandboxStatus) -> SandboxSummary:
    """Convert a sandbox from the answer to ListPodSandbox or PodSandboxStatus, which have the same fields."""
    metadata = sandbox.metadata
    return SandboxSummary(
        id=SandboxId(sandbox.id),
        uid=PodUid(metadata.uid),
        name=metadata.name,
        namespace=metadata.namespace,
        attempt=metadata.attempt,
        state=_SANDBOX_STATES.get(sandbox.state, SandboxState.NOT_READY),
        # containerd 1.6 reports the zero time of Go (before 1970) for a sandbox whose network could not be made.
        created_at_ns=max(sandbox.created_at, 0),
        handler=sandbox.runtime_handler,
        labels=dict(sandbox.labels),
        annotations=dict(sandbox.annotations),
    )


def sandbox_status_from_cri(answer: pb.PodSandboxStatusResponse) -> SandboxStatus:
    """Convert the answer to PodSandboxStatus. The addresses are in CRI's order, the primary one first."""
    status = answer.status
    network = status.network
    ips = (network.ip, *(more.ip for more in network.additional_ips))
    return SandboxStatus(
        summary=sandbox_summary_from_cri(status),
        ips=tuple(ip for ip in ips if ip),
        host_network=status.linux.namespaces.options.network == pb.NODE,
        info=dict(answer.info),
    )


def unit_summary_from_cri(container: pb.Container) -> UnitSummary:
    """Convert one container from the answer to ListContainers. The pod's UID is empty if its label is missing."""
    return UnitSummary(
        id=UnitId(container.id),
        sandbox_id=SandboxId(container.pod_sandbox_id),
        uid=PodUid(container.labels.get(names.POD_UID, "")),
        name=container.metadata.name,
        attempt=container.metadata.attempt,
        state=_UNIT_STATES.get(container.state, UnitState.UNKNOWN),
        created_at_ns=container.created_at,
        image=container.image.user_specified_image or container.image.image,
        image_id=container.image_id or container.image_ref,
        labels=dict(container.labels),
        annotations=dict(container.annotations),
    )


def unit_status_from_cri(answer: pb.ContainerStatusResponse, sandbox_id: SandboxId) -> UnitStatus:
    """Convert the answer to ContainerStatus. `sandbox_id`: sandbox of the container, which the answer does not have."""
    status = answer.status
    state = _UNIT_STATES.get(status.state, UnitState.UNKNOWN)
    never_ran = state is UnitState.EXITED and _was_cut_off(status)
    return UnitStatus(
        summary=UnitSummary(
            id=UnitId(status.id),
            sandbox_id=sandbox_id,
            uid=PodUid(status.labels.get(names.POD_UID, "")),
            name=status.metadata.name,
            attempt=status.metadata.attempt,
            state=state,
            created_at_ns=status.created_at,
            image=status.image.user_specified_image or status.image.image,
            image_id=status.image_id or status.image_ref,
            labels=dict(status.labels),
            annotations=dict(status.annotations),
        ),
        started_at_ns=_started_ns(status),
        finished_at_ns=status.finished_at,
        since_ns=_since_ns(status, state),
        exit_code=status.exit_code if state is UnitState.EXITED and not never_ran else None,
        reason=names.START_CUT_OFF if never_ran else status.reason,
        message=status.message,
        log_path=status.log_path,
        image_ref=status.image_ref,
        resources=_granted(status.resources.linux) if status.resources.HasField("linux") else {},
        info=dict(answer.info),
    )


def stats_from_cri(stats: pb.ContainerStats) -> UnitStats:
    """Convert the resource usage of a container. A value that the server did not send is None, not 0."""
    cpu, memory, layer = stats.cpu, stats.memory, stats.writable_layer
    return UnitStats(
        id=UnitId(stats.attributes.id),
        uid=PodUid(stats.attributes.labels.get(names.POD_UID, "")),
        name=stats.attributes.metadata.name,
        at_ns=cpu.timestamp or memory.timestamp or layer.timestamp,
        cpu_usage_core_ns=_figure(cpu, "usage_core_nano_seconds"),
        cpu_usage_nano_cores=_figure(cpu, "usage_nano_cores"),
        memory_working_set_bytes=_figure(memory, "working_set_bytes"),
        memory_usage_bytes=_figure(memory, "usage_bytes"),
        memory_rss_bytes=_figure(memory, "rss_bytes"),
        # 0: the container has no memory limit.
        memory_available_bytes=_figure(memory, "available_bytes") or None,
        fs_used_bytes=_figure(layer, "used_bytes"),
        fs_inodes_used=_figure(layer, "inodes_used"),
        swap_usage_bytes=_figure(stats.swap, "swap_usage_bytes"),
    )


_CUT_OFF = (
    "context canceled",
    "context deadline exceeded",
    "failed to start shim: start failed: : signal: killed",
)


def _was_cut_off(status: pb.ContainerStatus) -> bool:
    """Return True if the container never ran because its start was interrupted.

    containerd (1.6 to 2.1) reports that only in the status message.
    """
    return (
        status.reason == "StartError"
        and status.started_at <= 0
        and any(words in status.message for words in _CUT_OFF)
    )


def _started_ns(status: pb.ContainerStatus) -> int:
    """Return the start time, or the end time if that is earlier.

    containerd may record the start of a short-lived container after its end.
    """
    return min(status.started_at, status.finished_at) if status.finished_at else status.started_at


def _since_ns(status: pb.ContainerStatus, state: UnitState) -> int:
    if state is UnitState.CREATED:
        return status.created_at
    if state is UnitState.RUNNING:
        return status.started_at
    return status.finished_at


def _figure(
    message: pb.CpuUsage | pb.MemoryUsage | pb.FilesystemUsage | pb.SwapUsage, field: str
) -> int | None:
    if not message.HasField(field):
        return None
    value: int = getattr(message, field).value
    return value


def _granted(resources: pb.LinuxContainerResources) -> dict[str, int]:
    """Return the limits that are not 0, by their field names in `Resources`."""
    granted = {
        "cpu_shares": resources.cpu_shares,
        "cpu_period_us": resources.cpu_period,
        "cpu_quota_us": resources.cpu_quota,
        "memory_limit_bytes": resources.memory_limit_in_bytes,
        "memory_swap_limit_bytes": resources.memory_swap_limit_in_bytes,
        "oom_score_adj": resources.oom_score_adj,
    }
    return {name: value for name, value in granted.items() if value}
