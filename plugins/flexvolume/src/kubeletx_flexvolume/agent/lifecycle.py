"""`StorageAgent`: start and end of the agent.

    lock state directory and node name ─► recover journals ─► garbage list ─► serve sockets ─► install the driver
    first handshake ─► ready

The agent serves calls only when every volume of a former run is in a known state, and all that another node has taken
over is unmounted. At its end it accepts no more calls, lets steps that run end within a grace period, and leaves
volumes and the driver as they are: pods continue to use them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Blocking, BoundedThreadPool, Clock, Conflict, InvalidConfig, WhenFull
from kubeletx.linux.files import private_directory
from kubeletx.linux.locks import LockHeld, hold_lock
from kubeletx.linux.mounts import read_mounts
from kubeletx.linux.notify import notify

from ..attachments.views import panel_rows
from ..backends.fuse import NAME as FUSE
from ..backends.fuse import FuseBackend
from ..backends.pools import Pool
from ..backends.registry import build_backends
from ..commands import Commands
from ..device import Device
from ..mounts import Mounts
from ..values import file_stem
from .background import Attachments, Work
from .calls import DriverCalls, DriverCapabilities
from .config import AgentConfig, is_network_file_system
from .installer import KNOWN_PLUGIN_DIRECTORIES, DriverInstaller, install_places
from .namespace import MountNamespace, NamespacePrograms
from .operations import Operations
from .server import AgentServer
from .steps import StepRunner
from .stored import JournalFiles
from .worker import AgentTools

log = structlog.get_logger(__name__)

STOP_SECONDS: Final = 10.0
RESTART_SECONDS: Final = 60.0
_THREADS: Final = 8


async def run_agent(config: AgentConfig, *, clock: Clock, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises InvalidConfig, Conflict or PermissionDenied if the start is refused."""
    with hold_state(config.state_dir), hold_node(config.records, config.node_name):
        threads = BoundedThreadPool("files", _THREADS, when_full=WhenFull.WAIT, owner="storage agent")
        try:
            agent = StorageAgent(config, blocking=threads.run, clock=clock)
            async with contextlib.aclosing(agent):
                await agent.serve(stop)
        finally:
            threads.close()


def hold_state(directory: Path) -> contextlib.AbstractContextManager[None]:
    """Make the state directory, and hold its lock. Raises InvalidConfig, or Conflict with the PID of its agent."""
    what = f"has state directory {directory}; stop it, or give another --state-dir"
    return _hold(lambda: private_directory(directory) / "agent.lock", "--state-dir", directory, what)


def hold_node(records: Path | None, node: str) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the node's name for a file of records; None: the records are in a cluster, and nothing is held.

    Two agents with one name would treat each other's entries as left by a lost journal, and remove them, while pods use
    the volumes. Makes the directory of the file. Raises InvalidConfig, or Conflict with the PID of the agent of that name.
    """
    if records is None:
        return contextlib.nullcontext()
    directory = records.parent

    def path() -> Path:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory / f"{file_stem(node)}.lock"

    what = f"is node {node} in {records}; stop it, or give each agent a --node-name of its own"
    return _hold(path, "--records", records, what)


@contextlib.contextmanager
def _hold(lock: Callable[[], Path], option: str, place: Path, what: str) -> Iterator[None]:
    """Hold a lock. `lock`: makes its directory. `option`: gives the `place`. `what`: what another agent has."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(lock()))
        except LockHeld as error:
            raise Conflict(f"another storage agent, {error.owner}, {what}") from None
        except OSError as error:
            problem = f"{place}: {error.strerror}"
            raise InvalidConfig(
                obj="storage agent", field=option, problem=problem, fix="use another one"
            ) from error
        yield


class StorageAgent:
    """The storage agent of one node."""

    def __init__(self, config: AgentConfig, *, blocking: Blocking, clock: Clock) -> None:
        """Make all parts, in the event loop that uses them. `blocking`: runs calls of files."""
        self._config = config
        self._clock = clock
        namespace = MountNamespace(config.mount_namespace_of)
        namespace.check()
        commands = Commands(private_directory(config.state_dir / "volumes"))
        self._backends = build_backends(
            {pool.name: _with_sharing(pool) for pool in config.pools},
            commands=commands,
            clock=clock,
            blocking=blocking,
            boot_id=config.boot_id,
            state=config.state_dir,
            table=read_mounts,
        )
        self.attachments = Attachments(
            config,
            backends=self._backends.by_name,
            local=lambda: self.operations,
            blocking=blocking,
            clock=clock,
        )
        runner = StepRunner(
            book=self.attachments.book,
            backends=self._backends,
            mounts=lambda volume: Mounts(
                NamespacePrograms(commands, namespace, volume),
                mount_seconds=config.mount_seconds,
                unmount_seconds=config.unmount_seconds,
            ),
            device=lambda volume, path: Device(path, NamespacePrograms(commands, namespace, volume)),
            namespace=namespace,
            blocking=blocking,
            sets_group=config.fs_group == "top-directory",
            users=lambda device: self.operations.users(device),  # noqa: PLW0108  # it is made below
            wait_idle=commands.wait_idle,
        )
        tools = AgentTools(
            node=config.node_name,
            boot_id=config.boot_id,
            kubelet_roots=_real_roots(config, namespace),
            mount_seconds=config.mount_seconds,
            unmount_seconds=config.unmount_seconds,
            store=JournalFiles(config.state_dir / "volumes"),
            runner=runner,
            backends=self._backends,
            namespace=namespace,
            clock=clock,
            blocking=blocking,
        )
        self.operations = Operations(tools)
        capabilities = DriverCapabilities(
            selinux_relabel=config.selinux_relabel, fs_group=config.fs_group == "kubelet"
        )
        self._calls = DriverCalls(
            self.operations,
            tools,
            capabilities=capabilities,
            state=self._state,
            attachments=lambda: panel_rows(self.attachments.context.stores),
        )
        self._server = AgentServer(self._calls.answer)
        known = KNOWN_PLUGIN_DIRECTORIES if config.use_known_plugin_dirs else ()
        self._installer = DriverInstaller(
            install_places(config.volume_plugin_dirs, known=known),
            server=self._server,
            handshakes=self._calls.handshakes,
            clock=clock,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        try:
            await self.operations.recover()
            if isinstance(fuse := self._backends.get(FUSE), FuseBackend):
                await fuse.end_orphans([one["name"] for one in self.operations.state()])
            await self.attachments.before_serving()
            await self._server.listen(self._config.state_dir, "state directory")
            await self._installer.start()
            notify("STATUS=serving; no kubelet has called the driver yet")
            works = [
                *self.attachments.tasks,
                ("driver", self._installer.run),
                ("handshake", self._report_ready),
            ]
            async with _background(works, self._clock):
                log.info("Started the storage agent", node=self._config.node_name, pid=os.getpid())
                await stop.wait()
            notify("STOPPING=1\nSTATUS=stopping; volumes stay mounted")
        finally:
            await self._server.stop_listening()
            await self.operations.close(STOP_SECONDS)
            await self._server.close()
            log.info("Stopped the storage agent")

    async def aclose(self) -> None:
        await self.attachments.close()

    async def _report_ready(self) -> None:
        await self._calls.has_handshake.wait()
        notify("READY=1\nSTATUS=ready")
        log.info("The storage agent is ready")

    def _state(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "node": self._config.node_name,
            "isReady": self._calls.has_handshake.is_set(),
            "directories": self._installer.state(),
            "volumes": self.operations.state(),
        }


def _real_roots(config: AgentConfig, namespace: MountNamespace) -> dict[str, str]:
    """Return the root directories of kubelets as configured, and their real paths, with the real paths."""
    real = {root: namespace.real_path(root) for root in map(str, config.kubelet_root_dirs)}
    return {**{root: root for root in real.values()}, **real}


@contextlib.asynccontextmanager
async def _background(works: list[tuple[str, Work]], clock: Clock) -> AsyncIterator[None]:
    """Run tasks until the block ends. A task that a bug ends is started again after a minute."""

    async def guarded(name: str, run: Work) -> None:
        while True:
            try:
                await run()
            except Exception:  # root of the task
                log.exception("Failed a background task", task=name)
            else:
                return
            await clock.sleep(RESTART_SECONDS)

    tasks = [asyncio.create_task(guarded(name, run), name=f"agent-{name}") for name, run in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _with_sharing(pool: Pool) -> Pool:
    """Return the pool, shared if it is on a network file system."""
    entries = [
        one for one in read_mounts() if Path(os.path.realpath(pool.directory)).is_relative_to(one.target)
    ]
    nearest = max(entries, key=lambda one: len(one.target), default=None)
    if nearest is not None and is_network_file_system(nearest.fs_type):
        return msgspec.structs.replace(pool, is_shared=True)
    return pool
