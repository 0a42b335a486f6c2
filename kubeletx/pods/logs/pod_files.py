"""`PodFiles`: manages a pod's directories and small files on this node; blocking work runs on threads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from kubeletx.api import Blocking, KubeletxError, Unavailable, UnitId
from kubeletx.kube.types.core import Container, Pod
from kubeletx.linux.files import replace_file
from kubeletx.volumes import layout
from kubeletx.volumes.files.held import hold_directory
from kubeletx.volumes.preparer import VolumePreparer

from ..model.node_context import NodeContext
from .directories import PodDirectories
from .format import log_path
from .termination_messages import read_message

log = structlog.get_logger(__name__)

OVERRIDES_FILE: Final = "overrides.json"
"""File in the pod's data directory with operators' requests and granted resources (`workloads.overrides`)."""
_MAX_OVERRIDES_BYTES: Final = 1 << 20


class PodFiles:
    """Makes and removes pods' directories, logs and small files, and reads termination messages."""

    def __init__(
        self, context: NodeContext, directories: PodDirectories, volumes: VolumePreparer, blocking: Blocking
    ) -> None:
        self._context = context
        self._directories = directories
        self._volumes = volumes
        self._blocking = blocking

    async def create(self, pod: Pod) -> dict[str, int]:
        """Make the pod's log and data directories.

        For containers that have logs of earlier runs already, return the restart count of the next run by container
        name (docs/kubelet-parity.md, row L3).
        """

        def create() -> dict[str, int]:
            self._directories.make(pod)
            return self._directories.earlier_runs(pod)

        return await self._blocking(create)

    async def remove(self, pod: Pod) -> None:
        """Remove the pod's log and data directories with everything below.

        Raises Unavailable, and keeps the data directory, while something is mounted there. The data directory is
        removed last: if the agent crashes before, it shows that the pod's logs must still be removed.
        """
        await self._blocking(self._directories.remove_logs, pod.uid)
        await self._volumes.remove_directory(pod.uid)

    async def remove_log(self, pod: Pod, container: str, attempt: int) -> None:
        """Remove the logs, rotated ones included, and the termination message of one attempt (run of a container)."""
        await self._blocking(self._directories.remove_attempt, pod, container, attempt)

    async def begin_once(self, pod: Pod, what: str) -> bool:
        """Record on disk that operation `what` begins, and return True; return False if that was recorded before.

        Returns True also if the record cannot be written, for example on a full disk.
        """

        def begin() -> bool:
            marker = self._context.pod_directory(pod.uid) / layout.check_name(f"begun-{what}", "name")
            try:
                # O_EXCL decides: of two callers, also across a crash, only one begins.
                marker.touch(exist_ok=False)
            except FileExistsError:
                return False
            except OSError as error:
                log.warning(
                    "Failed to record the start of an operation",
                    pod_uid=pod.uid,
                    path=str(marker),
                    err=str(error),
                )
            return True

        return await self._blocking(begin)

    async def read_overrides(self, pod: Pod) -> bytes | None:
        """Read the pod's overrides file (`OVERRIDES_FILE`); None if there is none. Raises Unavailable."""

        def read() -> bytes | None:
            try:
                path = self._overrides(pod)
                with hold_directory(path.parent, depth=1) as directory:
                    return directory.read(path.name, _MAX_OVERRIDES_BYTES)
            except FileNotFoundError:  # no operator has requested anything for this pod
                return None
            except OSError as error:
                raise Unavailable(f"cannot read {self._overrides(pod)}: {error.strerror}") from error

        return await self._blocking(read)

    async def write_overrides(self, pod: Pod, data: bytes) -> None:
        """Replace the pod's overrides file (`OVERRIDES_FILE`) atomically, with fsync.

        Raises Unavailable if it cannot be written or the pod has no data directory.
        """

        def write() -> None:
            if not self._overrides(pod).parent.is_dir():
                raise Unavailable(
                    f"pod {pod.ref} has no directory on the node: it was not prepared yet, or is removed"
                )
            try:
                replace_file(self._overrides(pod), data)
            except OSError as error:
                raise Unavailable(f"cannot write {self._overrides(pod)}: {error.strerror}") from error

        await self._blocking(write)

    def _overrides(self, pod: Pod) -> Path:
        return self._context.pod_directory(pod.uid) / OVERRIDES_FILE

    async def link_log(self, pod: Pod, container: str, attempt: int, unit_id: UnitId) -> None:
        """Make the link for log collectors; a failure is only logged (docs/kubelet-parity.md, row L3)."""
        if not self._directories.makes_links:
            return
        try:
            await self._blocking(
                self._directories.link_log, pod, container, unit_id, log_path(container, attempt)
            )
        except KubeletxError as error:
            log.warning("Cannot link container log", pod=pod.ref, container=container, err=str(error))

    async def read_message(self, pod: Pod, container: Container, attempt: int, *, failed: bool) -> str:
        """Read the termination message of one ended run of a container (docs/kubelet-parity.md, row ST9).

        `failed`: its exit code was not 0.
        """
        file = layout.termination_message_path(self._context.root_dir, pod.uid, container.name, attempt)
        log_file = self._context.log_directory(pod) / log_path(container.name, attempt)
        policy = container.termination_message_policy

        def read() -> str:
            return read_message(file, policy=policy, failed=failed, log_file=log_file)

        return await self._blocking(read)
