"""Optional capabilities of a CRI runtime: one class for each protocol of `kubeletx.api`, such as `SupportsExec`."""

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
from .client import DEADLINE_SECONDS, CriClient, path_of
from .convert import resources_to_cri, stats_from_cri
from .stubs import runtime_v1_pb2 as pb

NO_SUCH_ID = "kubeletx-asks-whether-the-method-exists"

OwnUnits = Callable[[Mapping[str, str]], Awaitable[Callable[[str], bool]]]
"""Async function from a label match to a function that returns True if a container id belongs to this runtime."""


class CriExec:
    """Implements `SupportsExec`: runs commands inside a container."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

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
        """Return a URL of the CRI server's streaming server, which starts the command when a client connects.

        The URL is valid for one connection within a minute.
        """
        answer = await self._client.call(
            methods.EXEC,
            pb.ExecRequest(
                container_id=unit_id,
                cmd=request.command,
                tty=request.tty,
                stdin=request.stdin,
                stdout=request.stdout,
                stderr=request.stderr and not request.tty,
            ),
            timeout_seconds=DEADLINE_SECONDS,
        )
        return StreamUrl(answer.url)


class CriAttach:
    """Implements `SupportsAttach`: attaches to the streams of a container's main process."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def attach(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl:
        answer = await self._client.call(
            methods.ATTACH,
            pb.AttachRequest(
                container_id=unit_id,
                tty=request.tty,
                stdin=request.stdin,
                stdout=request.stdout,
                stderr=request.stderr and not request.tty,
            ),
            timeout_seconds=DEADLINE_SECONDS,
        )
        return StreamUrl(answer.url)


class CriPortForward:
    """Implements `SupportsPortForward`: connects to ports inside a sandbox's network."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def port_forward(self, sandbox_id: SandboxId, port: int) -> StreamUrl:
        answer = await self._client.call(
            methods.PORT_FORWARD,
            pb.PortForwardRequest(pod_sandbox_id=sandbox_id, port=[port]),
            timeout_seconds=DEADLINE_SECONDS,
        )
        return StreamUrl(answer.url)


class CriStats:
    """Implements `SupportsStats`: reports the resource usage of containers."""

    def __init__(self, client: CriClient, own_units: OwnUnits) -> None:
        self._client = client
        self._own_units = own_units

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return the usage of each running container of this runtime whose labels contain every pair of `match`.

        Containers that the server could not measure are left out.
        """
        answer = await self._client.call(
            methods.LIST_CONTAINER_STATS,
            pb.ListContainerStatsRequest(filter=pb.ContainerStatsFilter(label_selector=match)),
            timeout_seconds=DEADLINE_SECONDS,
        )
        is_own = await self._own_units(match)
        return [stats_from_cri(item) for item in answer.stats if is_own(item.attributes.id)]


class CriLogs:
    """Implements `SupportsLogReopen`: makes the server reopen a container's log file after a rotation."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def reopen_log(self, unit_id: UnitId) -> None:
        await self._client.call(
            methods.REOPEN_CONTAINER_LOG,
            pb.ReopenContainerLogRequest(container_id=unit_id),
            timeout_seconds=DEADLINE_SECONDS,
        )


class CriResize:
    """Implements `SupportsResize`: changes the resource limits of a running container."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def update_resources(self, unit_id: UnitId, resources: Resources) -> None:
        await self._client.call(
            methods.UPDATE_CONTAINER_RESOURCES,
            pb.UpdateContainerResourcesRequest(container_id=unit_id, linux=resources_to_cri(resources)),
            timeout_seconds=DEADLINE_SECONDS,
        )


class CriCheckpoint:
    """Implements `SupportsCheckpoint`: writes a container's state to an archive."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def checkpoint(self, unit_id: UnitId, path: str, timeout_seconds: float) -> None:
        await self._client.call(
            methods.CHECKPOINT_CONTAINER,
            pb.CheckpointContainerRequest(
                container_id=unit_id, location=path, timeout=math.ceil(timeout_seconds)
            ),
            timeout_seconds=timeout_seconds + DEADLINE_SECONDS,
        )


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


class CriPassthrough:
    """Implements `SupportsCriPassthrough`: forwards encoded calls to the CRI server without decoding them."""

    def __init__(self, runtime: CriClient, images: CriClient) -> None:
        self._runtime = runtime
        self._images = images

    async def cri_unary(self, method: str, request: bytes, deadline_seconds: float | None) -> bytes:
        """Forward a unary call, and return the encoded answer. Calls of ImageService go to the image endpoint.

        `method`: name such as RunPodSandbox, or a full gRPC path. Raises CriStatusError.
        """
        return await self._client_of(method).call_bytes(method, request, timeout_seconds=deadline_seconds)

    def cri_stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        return self._client_of(method).stream_bytes(method, request)

    def _client_of(self, method: str) -> CriClient:
        is_image = path_of(method).startswith(f"/{methods.IMAGES.full_name}/")
        return self._images if is_image else self._runtime
