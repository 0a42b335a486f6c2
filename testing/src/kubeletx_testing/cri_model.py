"""State and answers of a fake CRI server: sandboxes, containers and images in memory, without processes.

It answers as containerd 1.6 does. For instance, the error for a name that is taken has the status UNKNOWN, and only its
message tells why. Starting a container twice is refused. Stopping an unknown container returns NOT_FOUND, but removing
an unknown container succeeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from kubeletx.cri.stubs import containerd_containers_pb2 as containers_pb
from kubeletx.cri.stubs import containerd_task_types_pb2 as task_types
from kubeletx.cri.stubs import containerd_tasks_pb2 as tasks_pb
from kubeletx.cri.stubs import runtime_v1_pb2 as pb

Code = grpc.StatusCode

UNKNOWN_TO_OLD_SERVERS = frozenset(
    {
        "RuntimeConfig",
        "GetContainerEvents",
        "CheckpointContainer",
        "CheckpointPod",
        "RestorePod",
        "StreamPodSandboxes",
        "StreamContainers",
        "StreamContainerStats",
        "StreamPodSandboxStats",
        "StreamPodSandboxMetrics",
        "StreamImages",
        "UpdatePodSandboxResources",
    }
)
"""Methods of newer CRI versions, which containerd 1.6 answers with UNIMPLEMENTED."""

VERBOSE_CONFIG = """{"containerd": {"defaultRuntimeName": "runc", "runtimes": {
 "runc": {"runtimeType": "io.containerd.runc.v2", "options": {"SystemdCgroup": false}},
 "crun": {"runtimeType": "io.containerd.runc.v2", "options": null}}},
 "systemdCgroup": false, "restrictOOMScoreAdj": true}"""


class Refusal(Exception):
    """Raised to answer a call with a gRPC status other than OK."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code, self.details = code, details


class CriModel:
    """State of a fake CRI server, and its answers to calls.

    Tests may read and change `sandboxes`, `containers` and `images` directly. `unimplemented`: names of
    methods to answer with UNIMPLEMENTED.
    """

    def __init__(self) -> None:
        self.sandboxes: dict[str, pb.PodSandboxStatus] = {}
        self.containers: dict[str, pb.ContainerStatus] = {}
        self.sandbox_of: dict[str, str] = {}
        self.images: dict[str, pb.Image] = {}
        self.paused: set[str] = set()
        self.hung: set[str] = set()
        """Containers whose shim does not answer; containerd then returns the state UNKNOWN without a process id."""
        self.lost_records: set[str] = set()
        """Containers that another client has deleted from containerd; its CRI lists them, and cannot end them."""
        self.conditions = {"RuntimeReady": True, "NetworkReady": True}
        self.version = pb.VersionResponse(
            version="0.1.0", runtime_name="containerd", runtime_version="1.6.20", runtime_api_version="v1"
        )
        self.verbose = {"config": VERBOSE_CONFIG}
        self.unimplemented: set[str] = set(UNKNOWN_TO_OLD_SERVERS)
        self._numbers = itertools.count(1)
        self._time_ns = itertools.count(1_900_000_000_000_000_000, 1_000_000)
        self._answers: dict[str, Callable[[Any], Message]] = {
            "Version": lambda _q: self.version,
            "Status": self._status,
            "RuntimeConfig": lambda _q: pb.RuntimeConfigResponse(
                linux=pb.LinuxRuntimeConfiguration(cgroup_driver=pb.CGROUPFS)
            ),
            "RunPodSandbox": self._run_sandbox,
            "StopPodSandbox": self._stop_sandbox,
            "RemovePodSandbox": self._remove_sandbox,
            "PodSandboxStatus": self._sandbox_status,
            "ListPodSandbox": self._list_sandboxes,
            "CreateContainer": self._create,
            "StartContainer": self._start,
            "StopContainer": self._stop,
            "RemoveContainer": self._remove,
            "ContainerStatus": self._container_status,
            "ListContainers": self._list_containers,
            "UpdateContainerResources": self._update,
            "UpdateRuntimeConfig": lambda _q: pb.UpdateRuntimeConfigResponse(),
            "ReopenContainerLog": self._reopen,
            "ExecSync": self._exec_sync,
            "Exec": lambda q: pb.ExecResponse(url=f"http://127.0.0.1:1/exec/{self._known(q).id}"),
            "Attach": lambda q: pb.AttachResponse(url=f"http://127.0.0.1:1/attach/{self._known(q).id}"),
            "PortForward": self._port_forward,
            "ListContainerStats": self._stats,
            "CheckpointContainer": self._checkpoint,
            "ListImages": lambda _q: pb.ListImagesResponse(images=self.images.values()),
            "ImageStatus": self._image_status,
            "PullImage": self._pull,
            "RemoveImage": self._remove_image,
            "ImageFsInfo": self._fs_info,
        }

    def answer(self, method: str, request: Message) -> Message:
        """Return the response to a unary CRI call. Raises Refusal for an error."""
        answer = self._answers.get(method)
        if answer is None or method in self.unimplemented:
            raise Refusal(Code.UNIMPLEMENTED, f"method {method} not implemented")
        return answer(request)

    def answer_task(self, method: str, request: Any) -> Message:
        """Return the response to a call of containerd's tasks service. Raises Refusal for an error.

        The service knows only containers that were started.
        """
        task_id = request.container_id
        status = self.containers.get(task_id)
        if status is None or status.state == pb.CONTAINER_CREATED:
            raise Refusal(Code.NOT_FOUND, f"no running task found: task {task_id} not found: not found")
        match method:
            case "Get" if task_id in self.hung:
                return tasks_pb.GetResponse(process=task_types.Process(container_id=task_id))
            case "Get":
                exit_code = status.exit_code if status.state == pb.CONTAINER_EXITED else 0
                process = task_types.Process(
                    container_id=task_id, pid=1, status=self._task_state(status), exit_status=exit_code
                )
                return tasks_pb.GetResponse(process=process)
            case "Pause" | "Resume":
                self._pause(status, paused=method == "Pause")
            case "Kill":
                if status.state != pb.CONTAINER_RUNNING:
                    raise Refusal(Code.NOT_FOUND, "process already finished: not found")
                self.exit(task_id, 128 + request.signal)
            case "Wait":
                return tasks_pb.WaitResponse(exit_status=status.exit_code)
            case _:
                return tasks_pb.DeleteResponse(id=task_id)
        return Empty()

    def answer_container(self, method: str, request: Any) -> Message:
        """Return the response to a call of containerd's containers service. Raises Refusal for an error."""
        container_id = request.container.id
        if method != "Create":
            raise Refusal(Code.UNIMPLEMENTED, f"method {method} not implemented")
        if container_id in self.containers and container_id not in self.lost_records:
            raise Refusal(Code.ALREADY_EXISTS, f'container "{container_id}": already exists')
        self.lost_records.discard(container_id)
        return containers_pb.CreateContainerResponse(container=request.container)

    def _task_state(self, status: pb.ContainerStatus) -> task_types.Status:
        if status.state == pb.CONTAINER_EXITED:
            return task_types.STOPPED
        return task_types.PAUSED if status.id in self.paused else task_types.RUNNING

    def _pause(self, status: pb.ContainerStatus, *, paused: bool) -> None:
        word = "pause" if paused else "resume"
        state = task_types.Status.Name(self._task_state(status)).lower()
        if state != ("running" if paused else "paused"):
            raise Refusal(Code.UNKNOWN, f"cannot {word} a {state} container: unknown")
        if paused:
            self.paused.add(status.id)
        else:
            self.paused.remove(status.id)

    def now_ns(self) -> int:
        """Return a made-up wall-clock time in nanoseconds, one millisecond later than that of the previous call."""
        return next(self._time_ns)

    def exit(self, container_id: str, code: int = 0, reason: str = "") -> None:
        """End the process of a container. `code`: its exit code. `reason` empty: Completed or Error, by the code."""
        status = self.containers[container_id]
        self.paused.discard(container_id)
        status.state = pb.CONTAINER_EXITED
        status.finished_at = self.now_ns()
        status.exit_code = code
        status.reason = reason or ("Completed" if code == 0 else "Error")

    def add_image(self, name: str, *, size: int = 1000) -> pb.Image:
        """Add an image to the store, as a pull would; returns it. `size`: in bytes."""
        image = pb.Image(id=f"sha256:{next(self._numbers):064x}", repo_tags=[name], size=size)
        self.images[image.id] = image
        return image

    def _status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        return pb.StatusResponse(
            status=pb.RuntimeStatus(
                conditions=[
                    pb.RuntimeCondition(type=kind, status=ok, reason="" if ok else f"{kind}IsFalse")
                    for kind, ok in self.conditions.items()
                ]
            ),
            info=self.verbose if request.verbose else {},
        )

    def _run_sandbox(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        meta = request.config.metadata
        for other in self.sandboxes.values():
            if other.metadata == meta:
                raise _reserved(
                    "sandbox", f"{meta.name}_{meta.namespace}_{meta.uid}_{meta.attempt}", other.id
                )
        number = next(self._numbers)
        status = pb.PodSandboxStatus(
            id=f"sandbox-{number}",
            metadata=meta,
            state=pb.SANDBOX_READY,
            created_at=self.now_ns(),
            labels=request.config.labels,
            annotations=request.config.annotations,
            runtime_handler=request.runtime_handler,
        )
        options = request.config.linux.security_context.namespace_options
        status.linux.namespaces.options.CopyFrom(options)
        if options.network != pb.NODE:
            status.network.ip = f"10.88.{number >> 8}.{number & 255}"
        self.sandboxes[status.id] = status
        return pb.RunPodSandboxResponse(pod_sandbox_id=status.id)

    def _stop_sandbox(self, request: pb.StopPodSandboxRequest) -> pb.StopPodSandboxResponse:
        status = self._sandbox(request.pod_sandbox_id)
        for container_id in self._inside(status.id):
            is_lost = container_id in self.lost_records
            if self.containers[container_id].state == pb.CONTAINER_RUNNING and not is_lost:
                self.exit(container_id, 137)
        status.state = pb.SANDBOX_NOTREADY
        status.network.Clear()
        return pb.StopPodSandboxResponse()

    def _remove_sandbox(self, request: pb.RemovePodSandboxRequest) -> pb.RemovePodSandboxResponse:
        for container_id in self._inside(request.pod_sandbox_id):
            self._check_record(container_id)
            self._forget(container_id)
        self.sandboxes.pop(request.pod_sandbox_id, None)
        return pb.RemovePodSandboxResponse()

    def _sandbox_status(self, request: pb.PodSandboxStatusRequest) -> pb.PodSandboxStatusResponse:
        return pb.PodSandboxStatusResponse(status=self._sandbox(request.pod_sandbox_id))

    def _list_sandboxes(self, request: pb.ListPodSandboxRequest) -> pb.ListPodSandboxResponse:
        items = [
            pb.PodSandbox(
                id=s.id,
                metadata=s.metadata,
                state=s.state,
                created_at=s.created_at,
                labels=s.labels,
                annotations=s.annotations,
                runtime_handler=s.runtime_handler,
            )
            for s in self.sandboxes.values()
            if request.filter.id in ("", s.id) and _has(s.labels, request.filter.label_selector)
        ]
        return pb.ListPodSandboxResponse(items=items)

    def _create(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        sandbox = self._sandbox(request.pod_sandbox_id)
        config = request.config
        for other_id in self._inside(sandbox.id):
            if self.containers[other_id].metadata == config.metadata:
                raise _reserved("container", f"{config.metadata.name}_{sandbox.metadata.name}", other_id)
        status = pb.ContainerStatus(
            id=f"container-{next(self._numbers)}",
            metadata=config.metadata,
            state=pb.CONTAINER_CREATED,
            created_at=self.now_ns(),
            image=config.image,
            image_ref=config.image.image,
            labels=config.labels,
            annotations=config.annotations,
            log_path=f"{request.sandbox_config.log_directory}/{config.log_path}",
        )
        status.resources.linux.CopyFrom(config.linux.resources)
        self.containers[status.id] = status
        self.sandbox_of[status.id] = sandbox.id
        return pb.CreateContainerResponse(container_id=status.id)

    def _start(self, request: pb.StartContainerRequest) -> pb.StartContainerResponse:
        status = self._known(request)
        if status.state != pb.CONTAINER_CREATED:
            state = pb.ContainerState.Name(status.state)
            raise Refusal(Code.UNKNOWN, f"failed to set starting state: container is in {state} state")
        status.state = pb.CONTAINER_RUNNING
        status.started_at = self.now_ns()
        return pb.StartContainerResponse()

    def _stop(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        status = self._known(request)
        self._check_record(status.id)
        if status.state == pb.CONTAINER_RUNNING:
            self.exit(status.id, 143 if request.timeout else 137)
        return pb.StopContainerResponse()

    def _remove(self, request: pb.RemoveContainerRequest) -> pb.RemoveContainerResponse:
        self._check_record(request.container_id)
        self._forget(request.container_id)
        return pb.RemoveContainerResponse()

    def _container_status(self, request: pb.ContainerStatusRequest) -> pb.ContainerStatusResponse:
        return pb.ContainerStatusResponse(status=self._known(request))

    def _list_containers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        wanted = request.filter
        containers = [
            pb.Container(
                id=c.id,
                pod_sandbox_id=self.sandbox_of[c.id],
                metadata=c.metadata,
                image=c.image,
                image_ref=c.image_ref,
                state=c.state,
                created_at=c.created_at,
                labels=c.labels,
                annotations=c.annotations,
            )
            for c in self.containers.values()
            if wanted.id in ("", c.id)
            and wanted.pod_sandbox_id in ("", self.sandbox_of[c.id])
            and _has(c.labels, wanted.label_selector)
        ]
        return pb.ListContainersResponse(containers=containers)

    def _update(self, request: pb.UpdateContainerResourcesRequest) -> pb.UpdateContainerResourcesResponse:
        self._known(request).resources.linux.MergeFrom(request.linux)
        return pb.UpdateContainerResourcesResponse()

    def _reopen(self, request: pb.ReopenContainerLogRequest) -> pb.ReopenContainerLogResponse:
        if self._known(request).state != pb.CONTAINER_RUNNING:
            raise Refusal(Code.UNKNOWN, "container is not running")
        return pb.ReopenContainerLogResponse()

    def _exec_sync(self, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
        """Answer with the command line itself as the output of the command."""
        if self._known(request).state != pb.CONTAINER_RUNNING:
            raise Refusal(Code.UNKNOWN, "failed to exec in container: container is in CONTAINER_EXITED state")
        return pb.ExecSyncResponse(stdout=" ".join(request.cmd).encode())

    def _port_forward(self, request: pb.PortForwardRequest) -> pb.PortForwardResponse:
        sandbox = self._sandbox(request.pod_sandbox_id)
        return pb.PortForwardResponse(url=f"http://127.0.0.1:1/portforward/{sandbox.id}")

    def _checkpoint(self, request: pb.CheckpointContainerRequest) -> pb.CheckpointContainerResponse:
        self._known(request)
        return pb.CheckpointContainerResponse()

    def _stats(self, request: pb.ListContainerStatsRequest) -> pb.ListContainerStatsResponse:
        stats = [
            pb.ContainerStats(
                attributes=pb.ContainerAttributes(id=c.id, metadata=c.metadata, labels=c.labels),
                cpu=pb.CpuUsage(timestamp=self.now_ns(), usage_core_nano_seconds=pb.UInt64Value(value=5)),
                memory=pb.MemoryUsage(working_set_bytes=pb.UInt64Value(value=4096)),
            )
            for c in self.containers.values()
            if c.state == pb.CONTAINER_RUNNING and _has(c.labels, request.filter.label_selector)
        ]
        return pb.ListContainerStatsResponse(stats=stats)

    def _image_status(self, request: pb.ImageStatusRequest) -> pb.ImageStatusResponse:
        return pb.ImageStatusResponse(image=self._find_image(request.image.image))

    def _pull(self, request: pb.PullImageRequest) -> pb.PullImageResponse:
        image = self._find_image(request.image.image) or self.add_image(request.image.image)
        return pb.PullImageResponse(image_ref=image.id)

    def _remove_image(self, request: pb.RemoveImageRequest) -> pb.RemoveImageResponse:
        image = self._find_image(request.image.image)
        if image is not None:
            del self.images[image.id]
        return pb.RemoveImageResponse()

    def _fs_info(self, _request: pb.ImageFsInfoRequest) -> pb.ImageFsInfoResponse:
        used = sum(image.size for image in self.images.values())
        usage = pb.FilesystemUsage(
            timestamp=self.now_ns(),
            fs_id=pb.FilesystemIdentifier(mountpoint="/var/lib/images"),
            used_bytes=pb.UInt64Value(value=used),
        )
        return pb.ImageFsInfoResponse(image_filesystems=[usage])

    def _find_image(self, name: str) -> pb.Image | None:
        for image in self.images.values():
            if name in (image.id, *image.repo_tags, *image.repo_digests):
                return image
        return None

    def _sandbox(self, sandbox_id: str) -> pb.PodSandboxStatus:
        status = self.sandboxes.get(sandbox_id)
        if status is None:
            raise Refusal(
                Code.NOT_FOUND, f'an error occurred when try to find sandbox "{sandbox_id}": not found'
            )
        return status

    def _known(self, request: Any) -> pb.ContainerStatus:
        status = self.containers.get(request.container_id)
        if status is None:
            raise Refusal(Code.NOT_FOUND, f'container "{request.container_id}": not found')
        return status

    def _check_record(self, container_id: str) -> None:
        if container_id in self.lost_records:
            raise Refusal(
                Code.NOT_FOUND,
                f'get container info: container "{container_id}" in namespace "k8s.io": not found',
            )

    def _inside(self, sandbox_id: str) -> list[str]:
        return [key for key, value in self.sandbox_of.items() if value == sandbox_id]

    def _forget(self, container_id: str) -> None:
        self.containers.pop(container_id, None)
        self.paused.discard(container_id)
        self.sandbox_of.pop(container_id, None)


def _has(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def _reserved(what: str, name: str, owner: str) -> Refusal:
    return Refusal(
        Code.UNKNOWN, f'failed to reserve {what} name "{name}": name "{name}" is reserved for "{owner}"'
    )
