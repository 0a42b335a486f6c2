"""Optional capabilities of a CRI runtime, in one class: each is one or two calls of the server."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from kubeletx.api import (
    ExecResult,
    KubeletxError,
    Resources,
    SandboxId,
    StreamRequest,
    StreamUrl,
    TimedOut,
    Unavailable,
    UnitId,
    UnitStats,
    Unsupported,
)

from . import methods
from .client import DEADLINE_SECONDS, A, CriClient, Q, path_of
from .convert import resources_to_cri, stats_from_cri
from .methods import Method
from .stubs import runtime_v1_pb2 as pb

NO_SUCH_ID = "kubeletx-asks-whether-the-method-exists"

OwnUnits = Callable[[Mapping[str, str]], Awaitable[Callable[[str], bool]]]
"""Async function from a label match to a function that returns True if a container id belongs to this runtime."""


class CriCapabilities:
    """Implements the `Supports...` protocols of `kubeletx.api` that a CRI server has, except images and events.

    A URL that `exec`, `attach` or `port_forward` returns leads to the CRI server's streaming server. It is valid for one
    connection within a minute.
    """

    def __init__(self, client: CriClient, images: CriClient, own_units: OwnUnits) -> None:
        """`images`: the image endpoint, which gets the forwarded calls of ImageService."""
        self._client = client
        self._images = images
        self._own_units = own_units

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run a command in the container until it exits, and return its output and exit code.

        `timeout_seconds` is rounded up to whole seconds for CRI; 0: no limit. Raises Internal with the server's
        message if the command cannot be started: CRI has no error code for that.
        """
        answer = await self._client.call(
            methods.EXEC_SYNC,
            pb.ExecSyncRequest(container_id=unit_id, cmd=command, timeout=math.ceil(timeout_seconds)),
            timeout_seconds=timeout_seconds + DEADLINE_SECONDS if timeout_seconds else None,
        )
        return ExecResult(stdout=answer.stdout, stderr=answer.stderr, exit_code=answer.exit_code)

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl:
        wanted = pb.ExecRequest(
            container_id=unit_id,
            cmd=request.command,
            tty=request.tty,
            stdin=request.stdin,
            stdout=request.stdout,
            stderr=request.stderr and not request.tty,
        )
        return StreamUrl((await self._call(methods.EXEC, wanted)).url)

    async def attach(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl:
        wanted = pb.AttachRequest(
            container_id=unit_id,
            tty=request.tty,
            stdin=request.stdin,
            stdout=request.stdout,
            stderr=request.stderr and not request.tty,
        )
        return StreamUrl((await self._call(methods.ATTACH, wanted)).url)

    async def port_forward(self, sandbox_id: SandboxId, port: int) -> StreamUrl:
        wanted = pb.PortForwardRequest(pod_sandbox_id=sandbox_id, port=[port])
        return StreamUrl((await self._call(methods.PORT_FORWARD, wanted)).url)

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return the usage of each running container of this runtime whose labels contain every pair of `match`.

        Containers that the server could not measure are left out.
        """
        wanted = pb.ListContainerStatsRequest(filter=pb.ContainerStatsFilter(label_selector=match))
        answer = await self._call(methods.LIST_CONTAINER_STATS, wanted)
        is_own = await self._own_units(match)
        return [stats_from_cri(item) for item in answer.stats if is_own(item.attributes.id)]

    async def reopen_log(self, unit_id: UnitId) -> None:
        await self._call(methods.REOPEN_CONTAINER_LOG, pb.ReopenContainerLogRequest(container_id=unit_id))

    async def update_resources(self, unit_id: UnitId, resources: Resources) -> None:
        await self._call(
            methods.UPDATE_CONTAINER_RESOURCES,
            pb.UpdateContainerResourcesRequest(container_id=unit_id, linux=resources_to_cri(resources)),
        )

    async def checkpoint(self, unit_id: UnitId, path: str, timeout_seconds: float) -> None:
        await self._client.call(
            methods.CHECKPOINT_CONTAINER,
            pb.CheckpointContainerRequest(
                container_id=unit_id, location=path, timeout=math.ceil(timeout_seconds)
            ),
            timeout_seconds=timeout_seconds + DEADLINE_SECONDS,
        )

    async def set_pod_cidrs(self, cidrs: Sequence[str]) -> None:
        """Call UpdateRuntimeConfig: containerd makes its CNI configuration of them if it has a template and no other."""
        config = pb.RuntimeConfig(network_config=pb.NetworkConfig(pod_cidr=",".join(cidrs)))
        await self._call(methods.UPDATE_RUNTIME_CONFIG, pb.UpdateRuntimeConfigRequest(runtime_config=config))

    async def cri_unary(self, method: str, request: bytes, deadline_seconds: float | None) -> bytes:
        """Forward a unary call, and return the encoded answer.

        `method`: name such as RunPodSandbox, or a full gRPC path. Raises CriStatusError.
        """
        return await self._client_of(method).call_bytes(method, request, timeout_seconds=deadline_seconds)

    def cri_stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        return self._client_of(method).stream_bytes(method, request)

    def _client_of(self, method: str) -> CriClient:
        is_image = path_of(method).startswith(f"/{methods.IMAGES.full_name}/")
        return self._images if is_image else self._client

    async def _call(self, method: Method[Q, A], request: Q) -> A:
        return await self._client.call(method, request, timeout_seconds=DEADLINE_SECONDS)


async def knows_checkpoints(client: CriClient) -> bool:
    """Return True if the server has the call CheckpointContainer.

    To find out, the call is made for a container that does not exist. A server that has the call answers with
    NotFound or another error; a server without it answers Unimplemented.
    """
    request = pb.CheckpointContainerRequest(container_id=NO_SUCH_ID)
    try:
        await client.call(methods.CHECKPOINT_CONTAINER, request, timeout_seconds=DEADLINE_SECONDS)
    except Unsupported:
        return False
    except (Unavailable, TimedOut):
        raise
    except KubeletxError:
        return True
    return True
