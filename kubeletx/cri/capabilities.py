"""Capabilities of a CRI server beyond sandboxes and units, one class per protocol of the contract."""

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
"""Returns, for a label match, a test of whether a unit id belongs to this runtime."""


class CriExec:
    """Implements `SupportsExec`: runs commands inside a container."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run a command to its end. CRI counts whole seconds, so the timeout is rounded up; 0: no limit.

        A command that cannot be started raises Internal with the runtime's message, since CRI has no error
        code for it.
        """
        answer = await self._client.call(
            methods.EXEC_SYNC,
            pb.ExecSyncRequest(container_id=unit_id, cmd=command, timeout=math.ceil(timeout_seconds)),
            timeout_seconds=timeout_seconds + DEADLINE_SECONDS if timeout_seconds else None,
        )
        return ExecResult(stdout=answer.stdout, stderr=answer.stderr, exit_code=answer.exit_code)

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl:
        """Return a URL of the runtime's own streaming server, where the command runs once a client connects.

        It is valid for one connection within a minute.
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
    """Implements `SupportsAttach`: joins the streams of a container's main process."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def attach(self, unit_id: UnitId, request: StreamRequest) -> StreamUrl:
        """Return a URL of the runtime's own streaming server, which joins a client to the process's streams."""
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
        """Return a URL of the runtime's own streaming server, which connects a client to the port."""
        answer = await self._client.call(
            methods.PORT_FORWARD,
            pb.PortForwardRequest(pod_sandbox_id=sandbox_id, port=[port]),
            timeout_seconds=DEADLINE_SECONDS,
        )
        return StreamUrl(answer.url)


class CriStats:
    """Implements `SupportsStats`: reports the usage of containers."""

    def __init__(self, client: CriClient, own_units: OwnUnits) -> None:
        self._client = client
        self._own_units = own_units

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return one entry for each running container of this runtime that the server could measure."""
        answer = await self._client.call(
            methods.LIST_CONTAINER_STATS,
            pb.ListContainerStatsRequest(filter=pb.ContainerStatsFilter(label_selector=match)),
            timeout_seconds=DEADLINE_SECONDS,
        )
        is_own = await self._own_units(match)
        return [stats_from_cri(item) for item in answer.stats if is_own(item.attributes.id)]


class CriLogs:
    """Implements `SupportsLogReopen`: makes the server reopen a container's log after its rotation."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def reopen_log(self, unit_id: UnitId) -> None:
        """Make the server open the log's path again. Raises Conflict if the container does not run."""
        await self._client.call(
            methods.REOPEN_CONTAINER_LOG,
            pb.ReopenContainerLogRequest(container_id=unit_id),
            timeout_seconds=DEADLINE_SECONDS,
        )


class CriResize:
    """Implements `SupportsResize`: changes the limits of a running container."""

    def __init__(self, client: CriClient) -> None:
        self._client = client

    async def update_resources(self, unit_id: UnitId, resources: Resources) -> None:
        """Change the limits that are set in `resources`; the others stay unchanged."""
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
        """Write the container's state to an archive at `path`. The timeout is rounded up to CRI's whole seconds."""
        await self._client.call(
            methods.CHECKPOINT_CONTAINER,
            pb.CheckpointContainerRequest(
                container_id=unit_id, location=path, timeout=math.ceil(timeout_seconds)
            ),
            timeout_seconds=timeout_seconds + DEADLINE_SECONDS,
        )


async def knows_checkpoints(client: CriClient) -> bool:
    """Return True if the server has the call CheckpointContainer.

    It is called for a container that does not exist: a server with the call answers NotFound, another
    Unimplemented.
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
    """Implements `SupportsCriPassthrough`: forwards calls as bytes, without decoding them."""

    def __init__(self, runtime: CriClient, images: CriClient) -> None:
        self._runtime = runtime
        self._images = images

    async def cri_unary(self, method: str, request: bytes, deadline_seconds: float | None) -> bytes:
        """Forward a unary call to the runtime or the image endpoint.

        `method`: such as RunPodSandbox, or a full path.
        """
        return await self._client_of(method).call_bytes(method, request, timeout_seconds=deadline_seconds)

    def cri_stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Forward a streaming call. `method`: such as GetContainerEvents, or a full path."""
        return self._client_of(method).stream_bytes(method, request)

    def _client_of(self, method: str) -> CriClient:
        is_image = path_of(method).startswith(f"/{methods.IMAGE_SERVICE}/")
        return self._images if is_image else self._runtime
