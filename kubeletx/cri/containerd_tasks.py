"""Tasks of containerd that its CRI does not know of, and their end.

A caller that goes away while containerd's CRI starts a container (the agent was killed, or the call reached its
deadline) can leave the task behind: created, never started. The CRI shows the container as ended and refuses to
remove it (`errors.left_task`). containerd's own tasks service can end such a task. Source: containerd,
internal/cri/server/container_start.go.
"""

from __future__ import annotations

import signal
from contextlib import suppress

from google.protobuf.empty_pb2 import Empty

from kubeletx.api import Conflict, Internal, NotFound

from .client import CriClient
from .containerd import NAMESPACE_HEADER
from .methods import method
from .stubs import containerd_tasks_pb2 as pb

SERVICE = "containerd.services.tasks.v1.Tasks"
KILL = method(SERVICE, "Kill", pb.KillRequest, Empty)
WAIT = method(SERVICE, "Wait", pb.WaitRequest, pb.WaitResponse)
DELETE = method(SERVICE, "Delete", pb.DeleteTaskRequest, pb.DeleteResponse)
DEADLINE_SECONDS = 10.0


async def delete_task(client: CriClient, task_id: str, namespace: str) -> None:
    """Kill the task and delete it; succeeds if it is gone."""
    header = ((NAMESPACE_HEADER, namespace),)
    kill = pb.KillRequest(container_id=task_id, signal=signal.SIGKILL, all=True)
    with suppress(NotFound, Conflict, Internal):  # runc: there is no process to kill, or it has ended
        await client.call(KILL, kill, timeout_seconds=DEADLINE_SECONDS, metadata=header)
        wait = pb.WaitRequest(container_id=task_id)
        await client.call(WAIT, wait, timeout_seconds=DEADLINE_SECONDS, metadata=header)
    with suppress(NotFound):
        delete = pb.DeleteTaskRequest(container_id=task_id)
        await client.call(DELETE, delete, timeout_seconds=DEADLINE_SECONDS, metadata=header)
