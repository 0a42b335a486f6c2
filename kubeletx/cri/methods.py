"""All gRPC calls of CRI v1, read from the descriptors of the generated messages.

    answer = await client.call(methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(...))

It replaces generated service stubs, which create all calls for every channel and require the newest grpcio. The agent's
own CRI server and the test servers use the table `METHODS`. The constants are the calls that the agent makes: they add
the static types of the messages, which a descriptor does not have.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from .stubs import runtime_v1_pb2 as pb

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

RUNTIME: ServiceDescriptor = pb.DESCRIPTOR.services_by_name["RuntimeService"]
IMAGES: ServiceDescriptor = pb.DESCRIPTOR.services_by_name["ImageService"]


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
        return self.path.rsplit("/", 1)[1]


def method(service: ServiceDescriptor, request: type[Q], answer: type[A]) -> Method[Q, A]:
    """Return the only method of `service` with these messages. Raises ValueError if it has none, or several."""
    wanted = (request.DESCRIPTOR.full_name, answer.DESCRIPTOR.full_name)
    (described,) = (m for m in service.methods if (m.input_type.full_name, m.output_type.full_name) == wanted)
    return Method(_path(described), request, answer, described.server_streaming)


def _path(described: MethodDescriptor) -> str:
    return f"/{described.containing_service.full_name}/{described.name}"


VERSION = method(RUNTIME, pb.VersionRequest, pb.VersionResponse)
RUN_POD_SANDBOX = method(RUNTIME, pb.RunPodSandboxRequest, pb.RunPodSandboxResponse)
STOP_POD_SANDBOX = method(RUNTIME, pb.StopPodSandboxRequest, pb.StopPodSandboxResponse)
REMOVE_POD_SANDBOX = method(RUNTIME, pb.RemovePodSandboxRequest, pb.RemovePodSandboxResponse)
POD_SANDBOX_STATUS = method(RUNTIME, pb.PodSandboxStatusRequest, pb.PodSandboxStatusResponse)
LIST_POD_SANDBOX = method(RUNTIME, pb.ListPodSandboxRequest, pb.ListPodSandboxResponse)
CREATE_CONTAINER = method(RUNTIME, pb.CreateContainerRequest, pb.CreateContainerResponse)
START_CONTAINER = method(RUNTIME, pb.StartContainerRequest, pb.StartContainerResponse)
STOP_CONTAINER = method(RUNTIME, pb.StopContainerRequest, pb.StopContainerResponse)
REMOVE_CONTAINER = method(RUNTIME, pb.RemoveContainerRequest, pb.RemoveContainerResponse)
LIST_CONTAINERS = method(RUNTIME, pb.ListContainersRequest, pb.ListContainersResponse)
CONTAINER_STATUS = method(RUNTIME, pb.ContainerStatusRequest, pb.ContainerStatusResponse)
UPDATE_CONTAINER_RESOURCES = method(
    RUNTIME, pb.UpdateContainerResourcesRequest, pb.UpdateContainerResourcesResponse
)
REOPEN_CONTAINER_LOG = method(RUNTIME, pb.ReopenContainerLogRequest, pb.ReopenContainerLogResponse)
EXEC_SYNC = method(RUNTIME, pb.ExecSyncRequest, pb.ExecSyncResponse)
EXEC = method(RUNTIME, pb.ExecRequest, pb.ExecResponse)
ATTACH = method(RUNTIME, pb.AttachRequest, pb.AttachResponse)
PORT_FORWARD = method(RUNTIME, pb.PortForwardRequest, pb.PortForwardResponse)
LIST_CONTAINER_STATS = method(RUNTIME, pb.ListContainerStatsRequest, pb.ListContainerStatsResponse)
STATUS = method(RUNTIME, pb.StatusRequest, pb.StatusResponse)
CHECKPOINT_CONTAINER = method(RUNTIME, pb.CheckpointContainerRequest, pb.CheckpointContainerResponse)
GET_CONTAINER_EVENTS = method(RUNTIME, pb.GetEventsRequest, pb.ContainerEventResponse)
UPDATE_RUNTIME_CONFIG = method(RUNTIME, pb.UpdateRuntimeConfigRequest, pb.UpdateRuntimeConfigResponse)
RUNTIME_CONFIG = method(RUNTIME, pb.RuntimeConfigRequest, pb.RuntimeConfigResponse)
LIST_IMAGES = method(IMAGES, pb.ListImagesRequest, pb.ListImagesResponse)
IMAGE_STATUS = method(IMAGES, pb.ImageStatusRequest, pb.ImageStatusResponse)
PULL_IMAGE = method(IMAGES, pb.PullImageRequest, pb.PullImageResponse)
REMOVE_IMAGE = method(IMAGES, pb.RemoveImageRequest, pb.RemoveImageResponse)
IMAGE_FS_INFO = method(IMAGES, pb.ImageFsInfoRequest, pb.ImageFsInfoResponse)

METHODS: dict[str, Method[Any, Any]] = {
    described.name: Method(
        _path(described),
        getattr(pb, described.input_type.name),
        getattr(pb, described.output_type.name),
        described.server_streaming,
    )
    for service in (RUNTIME, IMAGES)
    for described in service.methods
}
"""All methods by name; the two services have no method name in common."""
