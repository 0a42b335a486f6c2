"""Table of all gRPC calls of CRI v1, with the types of their messages.

    answer = await client.call(methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(...))

It replaces generated service stubs, which create all calls for every channel and require the newest grpcio. The agent's
own CRI server and the test servers use the table too.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from .stubs import runtime_v1_pb2 as pb

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

RUNTIME_SERVICE = "runtime.v1.RuntimeService"
IMAGE_SERVICE = "runtime.v1.ImageService"


class Method(NamedTuple, Generic[Q, A]):
    """One gRPC method: its path, and the types of its request and answer.

    `stream`: True for a server-streaming method, which has any number of answers.
    """

    path: str
    request: type[Q]
    answer: type[A]
    stream: bool = False

    @property
    def name(self) -> str:
        """Name of the method, such as RunPodSandbox: the last part of its path."""
        return self.path.rsplit("/", 1)[1]

    @property
    def service(self) -> str:
        """Full name of the gRPC service, such as runtime.v1.RuntimeService."""
        return self.path[1:].rsplit("/", 1)[0]


def method(service: str, name: str, request: type[Q], answer: type[A]) -> Method[Q, A]:
    """Make the table entry of a unary method. `service`: full name of the gRPC service. `name`: name of the method."""
    return Method(f"/{service}/{name}", request, answer)


def streaming(service: str, name: str, request: type[Q], answer: type[A]) -> Method[Q, A]:
    """Make the table entry of a server-streaming method. Parameters: as for `method`."""
    return Method(f"/{service}/{name}", request, answer, True)


# --- RuntimeService ---
VERSION = method(RUNTIME_SERVICE, "Version", pb.VersionRequest, pb.VersionResponse)
RUN_POD_SANDBOX = method(RUNTIME_SERVICE, "RunPodSandbox", pb.RunPodSandboxRequest, pb.RunPodSandboxResponse)
STOP_POD_SANDBOX = method(
    RUNTIME_SERVICE, "StopPodSandbox", pb.StopPodSandboxRequest, pb.StopPodSandboxResponse
)
REMOVE_POD_SANDBOX = method(
    RUNTIME_SERVICE, "RemovePodSandbox", pb.RemovePodSandboxRequest, pb.RemovePodSandboxResponse
)
POD_SANDBOX_STATUS = method(
    RUNTIME_SERVICE, "PodSandboxStatus", pb.PodSandboxStatusRequest, pb.PodSandboxStatusResponse
)
LIST_POD_SANDBOX = method(
    RUNTIME_SERVICE, "ListPodSandbox", pb.ListPodSandboxRequest, pb.ListPodSandboxResponse
)
STREAM_POD_SANDBOXES = streaming(
    RUNTIME_SERVICE, "StreamPodSandboxes", pb.StreamPodSandboxesRequest, pb.StreamPodSandboxesResponse
)
CREATE_CONTAINER = method(
    RUNTIME_SERVICE, "CreateContainer", pb.CreateContainerRequest, pb.CreateContainerResponse
)
START_CONTAINER = method(
    RUNTIME_SERVICE, "StartContainer", pb.StartContainerRequest, pb.StartContainerResponse
)
STOP_CONTAINER = method(RUNTIME_SERVICE, "StopContainer", pb.StopContainerRequest, pb.StopContainerResponse)
REMOVE_CONTAINER = method(
    RUNTIME_SERVICE, "RemoveContainer", pb.RemoveContainerRequest, pb.RemoveContainerResponse
)
LIST_CONTAINERS = method(
    RUNTIME_SERVICE, "ListContainers", pb.ListContainersRequest, pb.ListContainersResponse
)
STREAM_CONTAINERS = streaming(
    RUNTIME_SERVICE, "StreamContainers", pb.StreamContainersRequest, pb.StreamContainersResponse
)
CONTAINER_STATUS = method(
    RUNTIME_SERVICE, "ContainerStatus", pb.ContainerStatusRequest, pb.ContainerStatusResponse
)
UPDATE_CONTAINER_RESOURCES = method(
    RUNTIME_SERVICE,
    "UpdateContainerResources",
    pb.UpdateContainerResourcesRequest,
    pb.UpdateContainerResourcesResponse,
)
REOPEN_CONTAINER_LOG = method(
    RUNTIME_SERVICE, "ReopenContainerLog", pb.ReopenContainerLogRequest, pb.ReopenContainerLogResponse
)
EXEC_SYNC = method(RUNTIME_SERVICE, "ExecSync", pb.ExecSyncRequest, pb.ExecSyncResponse)
EXEC = method(RUNTIME_SERVICE, "Exec", pb.ExecRequest, pb.ExecResponse)
ATTACH = method(RUNTIME_SERVICE, "Attach", pb.AttachRequest, pb.AttachResponse)
PORT_FORWARD = method(RUNTIME_SERVICE, "PortForward", pb.PortForwardRequest, pb.PortForwardResponse)
CONTAINER_STATS = method(
    RUNTIME_SERVICE, "ContainerStats", pb.ContainerStatsRequest, pb.ContainerStatsResponse
)
LIST_CONTAINER_STATS = method(
    RUNTIME_SERVICE, "ListContainerStats", pb.ListContainerStatsRequest, pb.ListContainerStatsResponse
)
STREAM_CONTAINER_STATS = streaming(
    RUNTIME_SERVICE, "StreamContainerStats", pb.StreamContainerStatsRequest, pb.StreamContainerStatsResponse
)
POD_SANDBOX_STATS = method(
    RUNTIME_SERVICE, "PodSandboxStats", pb.PodSandboxStatsRequest, pb.PodSandboxStatsResponse
)
LIST_POD_SANDBOX_STATS = method(
    RUNTIME_SERVICE, "ListPodSandboxStats", pb.ListPodSandboxStatsRequest, pb.ListPodSandboxStatsResponse
)
STREAM_POD_SANDBOX_STATS = streaming(
    RUNTIME_SERVICE,
    "StreamPodSandboxStats",
    pb.StreamPodSandboxStatsRequest,
    pb.StreamPodSandboxStatsResponse,
)
UPDATE_RUNTIME_CONFIG = method(
    RUNTIME_SERVICE, "UpdateRuntimeConfig", pb.UpdateRuntimeConfigRequest, pb.UpdateRuntimeConfigResponse
)
STATUS = method(RUNTIME_SERVICE, "Status", pb.StatusRequest, pb.StatusResponse)
CHECKPOINT_CONTAINER = method(
    RUNTIME_SERVICE, "CheckpointContainer", pb.CheckpointContainerRequest, pb.CheckpointContainerResponse
)
CHECKPOINT_POD = method(RUNTIME_SERVICE, "CheckpointPod", pb.CheckpointPodRequest, pb.CheckpointPodResponse)
RESTORE_POD = method(RUNTIME_SERVICE, "RestorePod", pb.RestorePodRequest, pb.RestorePodResponse)
GET_CONTAINER_EVENTS = streaming(
    RUNTIME_SERVICE, "GetContainerEvents", pb.GetEventsRequest, pb.ContainerEventResponse
)
LIST_METRIC_DESCRIPTORS = method(
    RUNTIME_SERVICE,
    "ListMetricDescriptors",
    pb.ListMetricDescriptorsRequest,
    pb.ListMetricDescriptorsResponse,
)
LIST_POD_SANDBOX_METRICS = method(
    RUNTIME_SERVICE,
    "ListPodSandboxMetrics",
    pb.ListPodSandboxMetricsRequest,
    pb.ListPodSandboxMetricsResponse,
)
STREAM_POD_SANDBOX_METRICS = streaming(
    RUNTIME_SERVICE,
    "StreamPodSandboxMetrics",
    pb.StreamPodSandboxMetricsRequest,
    pb.StreamPodSandboxMetricsResponse,
)
RUNTIME_CONFIG = method(RUNTIME_SERVICE, "RuntimeConfig", pb.RuntimeConfigRequest, pb.RuntimeConfigResponse)
UPDATE_POD_SANDBOX_RESOURCES = method(
    RUNTIME_SERVICE,
    "UpdatePodSandboxResources",
    pb.UpdatePodSandboxResourcesRequest,
    pb.UpdatePodSandboxResourcesResponse,
)
# --- ImageService ---
LIST_IMAGES = method(IMAGE_SERVICE, "ListImages", pb.ListImagesRequest, pb.ListImagesResponse)
STREAM_IMAGES = streaming(IMAGE_SERVICE, "StreamImages", pb.StreamImagesRequest, pb.StreamImagesResponse)
IMAGE_STATUS = method(IMAGE_SERVICE, "ImageStatus", pb.ImageStatusRequest, pb.ImageStatusResponse)
PULL_IMAGE = method(IMAGE_SERVICE, "PullImage", pb.PullImageRequest, pb.PullImageResponse)
REMOVE_IMAGE = method(IMAGE_SERVICE, "RemoveImage", pb.RemoveImageRequest, pb.RemoveImageResponse)
IMAGE_FS_INFO = method(IMAGE_SERVICE, "ImageFsInfo", pb.ImageFsInfoRequest, pb.ImageFsInfoResponse)

METHODS: dict[str, Method[Any, Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Method)
}
"""All methods by name; the two services have no method name in common."""
