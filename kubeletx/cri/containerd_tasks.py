"""`ContainerdTasks`: the tasks service of containerd, for operations that CRI lacks; `restore_record`: its containers.

    tasks = ContainerdTasks(client)
    await tasks.pause(unit_id)
    assert (await tasks.get(unit_id)).state is TaskState.PAUSED

A task is the process tree of a container; its id is the container's id. CRI cannot pause a container, and shows a
paused one as running.

`delete` also ends tasks that containerd's CRI does not know. If StartContainer is interrupted (the agent was killed, or
the call reached its deadline), a task may be left that was created and never started. CRI then shows the container as
exited, and refuses to remove it (see `errors.left_task`). Source: containerd, internal/cri/server/container_start.go.

containerd has a record of each container, and its CRI a second one. If another client deletes the first (``ctr
containers rm``), CRI still lists the container, but answers NotFound to StopContainer, RemoveContainer and
RemovePodSandbox, and does not stop its process, until containerd is restarted (seen on 1.6).
"""

from __future__ import annotations

import enum
import signal
from contextlib import suppress
from typing import Any

import msgspec
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty

from kubeletx.api import AlreadyExists, Conflict, Internal, NotFound, TimedOut

from .client import CriClient
from .containerd import NAMESPACE_HEADER
from .images import CRI_NAMESPACE
from .methods import A, Method, Q, method
from .stubs import containerd_containers_pb2 as containers
from .stubs import containerd_task_types_pb2 as types
from .stubs import containerd_tasks_pb2 as pb

TASKS = pb.DESCRIPTOR.services_by_name["Tasks"]
GET = method(TASKS, pb.GetRequest, pb.GetResponse)
PAUSE = method(TASKS, pb.PauseTaskRequest, Empty)
RESUME = method(TASKS, pb.ResumeTaskRequest, Empty)
KILL = method(TASKS, pb.KillRequest, Empty)
WAIT = method(TASKS, pb.WaitRequest, pb.WaitResponse)
DELETE = method(TASKS, pb.DeleteTaskRequest, pb.DeleteResponse)
TASK_METHODS: dict[str, Method[Any, Any]] = {
    task_method.name: task_method for task_method in (GET, PAUSE, RESUME, KILL, WAIT, DELETE)
}
"""The gRPC methods of the tasks service that this module uses, by name."""

CREATE_RECORD = method(
    containers.DESCRIPTOR.services_by_name["Containers"],
    containers.CreateContainerRequest,
    containers.CreateContainerResponse,
)

DEADLINE_SECONDS = 10.0


async def restore_record(client: CriClient, container_id: str) -> bool:
    """Create containerd's record of a CRI container again. Returns False if it was not missing.

    CRI can then stop and remove the container: it needs no more than the id. containerd has already deleted the
    container's file system with the first record.
    """
    record = containers.Container(
        id=container_id,
        runtime=containers.Container.Runtime(
            name="io.containerd.runc.v2"
        ),  # a shim that runs is found by the id
        spec=AnyMessage(type_url="types.containerd.io/opencontainers/runtime-spec/1/Spec", value=b"{}"),
    )
    try:
        await client.call(
            CREATE_RECORD,
            containers.CreateContainerRequest(container=record),
            timeout_seconds=DEADLINE_SECONDS,
            metadata=((NAMESPACE_HEADER, CRI_NAMESPACE),),
        )
    except AlreadyExists:
        return False
    return True


class TaskState(enum.Enum):
    """State of a containerd task; the values are containerd's words."""

    UNKNOWN = "unknown"
    CREATED = "created"
    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    PAUSING = "pausing"


_STATES = {
    types.CREATED: TaskState.CREATED,
    types.RUNNING: TaskState.RUNNING,
    types.STOPPED: TaskState.STOPPED,
    types.PAUSED: TaskState.PAUSED,
    types.PAUSING: TaskState.PAUSING,
}


class ContainerdTask(msgspec.Struct, frozen=True, kw_only=True):
    """One containerd task: the processes of a container. `id`: the container's id.

    `pid`: process id of its first process, in containerd's pid namespace. `exit_code`: None until it has stopped.
    """

    id: str
    state: TaskState
    pid: int
    exit_code: int | None = None


class ContainerdTasks:
    """Client of containerd's tasks service for one containerd namespace.

    All methods raise Unsupported if the server is not containerd.
    """

    def __init__(
        self,
        client: CriClient,
        *,
        namespace: str = CRI_NAMESPACE,
        timeout_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        """`namespace`: containerd namespace. `timeout_seconds`: deadline of each call."""
        self._client = client
        self._header = ((NAMESPACE_HEADER, namespace),)
        self._timeout_seconds = timeout_seconds

    async def get(self, task_id: str) -> ContainerdTask:
        """Return the task with this id. Raises NotFound, and TimedOut if its shim does not answer.

        Source: containerd, services/tasks/local.go, getProcessState.
        """
        process = (await self._call(GET, pb.GetRequest(container_id=task_id))).process
        if process.status == types.UNKNOWN:  # containerd waits 2 s for the shim, and then succeeds
            raise TimedOut(f"containerd cannot read the state of task {task_id}: its shim does not answer")
        state = _STATES.get(process.status, TaskState.UNKNOWN)
        exit_code = process.exit_status if state is TaskState.STOPPED else None
        return ContainerdTask(id=task_id, state=state, pid=process.pid, exit_code=exit_code)

    async def pause(self, task_id: str) -> None:
        """Pause all processes of the task; succeeds if it is already paused.

        Raises NotFound if there is no such task, and Conflict if it is not running.
        """
        await self._change(PAUSE, pb.PauseTaskRequest(container_id=task_id), task_id, TaskState.PAUSED)

    async def resume(self, task_id: str) -> None:
        """Resume all processes of a paused task; succeeds if it is already running.

        Raises NotFound if there is no such task, and Conflict if it has stopped.
        """
        await self._change(RESUME, pb.ResumeTaskRequest(container_id=task_id), task_id, TaskState.RUNNING)

    async def kill(self, task_id: str, number: int = signal.SIGKILL, *, all_processes: bool = False) -> None:
        """Send signal `number` to the task's first process, or to all its processes if `all_processes` is True.

        Succeeds if the task has stopped or does not exist.
        """
        request = pb.KillRequest(container_id=task_id, signal=number, all=all_processes)
        try:
            await self._call(KILL, request)
        except NotFound:
            return  # no task, or no process
        # runc reports the end of the process with a message only, so the state decides.
        except (Conflict, Internal):
            if await self._state(task_id) not in (None, TaskState.STOPPED):
                raise

    async def delete(self, task_id: str) -> None:
        """Kill the task, wait until it has ended, and delete it; succeeds if it does not exist."""
        kill = pb.KillRequest(container_id=task_id, signal=signal.SIGKILL, all=True)
        with suppress(NotFound, Conflict, Internal):  # runc: there is no process to kill, or it has ended
            await self._call(KILL, kill)
            # containerd refuses to delete a running task, and a signal does not wait for the end.
            await self._call(WAIT, pb.WaitRequest(container_id=task_id))
        with suppress(NotFound):  # the CRI or another caller deleted it first
            await self._call(DELETE, pb.DeleteTaskRequest(container_id=task_id))

    async def _change(self, call: Method[Q, Empty], request: Q, task_id: str, wanted: TaskState) -> None:
        try:
            await self._call(call, request)
        except (Conflict, Internal) as error:
            # If the task is already in the wanted state, runc fails with a message only ("cannot pause a paused
            # container"), so the state is read here.
            state = await self._state(task_id)
            if state is wanted:
                return
            if isinstance(error, Internal) and state is TaskState.STOPPED:
                raise Conflict(f"task {task_id} has stopped: {error}") from error
            raise

    async def _state(self, task_id: str) -> TaskState | None:
        """Return the state of the task; None if the task does not exist."""
        try:
            return (await self.get(task_id)).state
        except NotFound:
            return None

    async def _call(self, call: Method[Q, A], request: Q) -> A:
        return await self._client.call(
            call, request, timeout_seconds=self._timeout_seconds, metadata=self._header
        )
