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
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import BoundedThreadPool, Clock, WhenFull
from kubeletx.linux.files import private_directory
from kubeletx.linux.mounts import read_mounts
from kubeletx.linux.notify import notify

from ..backends.fuse import NAME as FUSE
from ..backends.fuse import FuseBackend
from ..backends.pools import Pool
from ..backends.registry import BackendParts, Backends, build_backends
from ..commands import Commands
from ..device import Device
from ..driver.install import KNOWN_PLUGIN_DIRECTORIES, install_places
from ..mounts import Mounts
from .agent_locks import hold_node, hold_state
from .background import Attachments, make_attachments
from .calls import DriverCalls, DriverCapabilities
from .config import AgentConfig, is_network_file_system
from .handshakes import Handshakes
from .installer import DriverInstaller
from .namespace import MountNamespace, NamespacePrograms
from .operations import AgentFacts, Operations
from .server import AgentServer
from .steps import StepRunner
from .stored import JournalFiles
from .worker import WorkerParts

log = structlog.get_logger(__name__)

STOP_SECONDS: Final = 10.0
RESTART_SECONDS: Final = 60.0
_THREADS: Final = 8


class AgentParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a running agent."""

    operations: Operations
    backends: Backends
    server: AgentServer
    installer: DriverInstaller
    handshakes: Handshakes
    attachments: Attachments


class StorageAgent:
    """The storage agent of one node."""

    def __init__(self, config: AgentConfig, *, clock: Clock) -> None:
        self._config = config
        self._clock = clock

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises InvalidConfig, Conflict or PermissionDenied if the start is refused."""
        config = self._config
        with hold_state(config.state_dir), hold_node(config.records, config.node_name):
            pool = BoundedThreadPool("files", _THREADS, when_full=WhenFull.WAIT, owner="storage agent")
            try:
                async with contextlib.AsyncExitStack() as stack:
                    parts = self.build(pool)
                    stack.push_async_callback(parts.attachments.close)
                    await self._serve(parts, stop)
            finally:
                pool.close()

    def build(self, pool: BoundedThreadPool) -> AgentParts:
        """Make the parts, in the event loop that uses them. `pool`: runs calls of files."""
        config = self._config
        namespace = MountNamespace(config.mount_namespace_of)
        namespace.check()
        store = JournalFiles(private_directory(config.state_dir / "volumes"))
        commands = Commands(config.state_dir / "volumes")
        backends = build_backends(
            BackendParts(
                pools={one.name: _with_sharing(one) for one in config.pools},
                commands=commands,
                clock=self._clock,
                blocking=pool.run,
                boot_id=config.boot_id,
                state_directory=config.state_dir,
                table=read_mounts,
            )
        )
        local: list[Operations] = []
        attachments = make_attachments(
            config, backends=backends.by_name, local=lambda: local[0], blocking=pool.run, clock=self._clock
        )
        runner = StepRunner(
            book=attachments.book,
            backends=backends,
            mounts=lambda volume: Mounts(
                NamespacePrograms(commands, namespace, volume),
                mount_seconds=config.mount_seconds,
                unmount_seconds=config.unmount_seconds,
            ),
            device=lambda volume, path: Device(path, NamespacePrograms(commands, namespace, volume)),
            namespace=namespace,
            blocking=pool.run,
            sets_group=config.fs_group == "top-directory",
            users=lambda device: local[0].users(device),  # noqa: PLW0108  # it is made below
        )
        worker_parts = WorkerParts(
            store=store,
            runner=runner,
            clock=self._clock,
            blocking=pool.run,
            is_mounted=lambda path: namespace.find_mount(path) is not None,
        )
        facts = self._facts(namespace)
        operations = Operations(worker_parts, facts=facts, namespace=namespace, backends=backends)
        local.append(operations)
        return self._with_server(operations, attachments, backends=backends, facts=facts)

    async def _serve(self, parts: AgentParts, stop: asyncio.Event) -> None:
        try:
            await parts.operations.recover()
            if isinstance(fuse := parts.backends.get(FUSE), FuseBackend):
                await fuse.end_orphans([one["name"] for one in parts.operations.state()])
            await parts.attachments.before_serving()
            await parts.server.listen(self._config.state_dir, "state directory")
            await parts.installer.start()
            notify("STATUS=serving; no kubelet has called the driver yet")
            works = [
                *parts.attachments.tasks,
                ("driver", parts.installer.run),
                ("handshake", _report_ready(parts)),
            ]
            async with _background(works, self._clock):
                log.info("Started the storage agent", node=self._config.node_name, pid=os.getpid())
                await stop.wait()
            notify("STOPPING=1\nSTATUS=stopping; volumes stay mounted")
        finally:
            await parts.server.stop_listening()
            await parts.operations.close(STOP_SECONDS)
            await parts.server.close()
            log.info("Stopped the storage agent")

    def _with_server(
        self, operations: Operations, attachments: Attachments, *, backends: Backends, facts: AgentFacts
    ) -> AgentParts:
        config, handshakes = self._config, Handshakes()
        capabilities = DriverCapabilities(
            selinux_relabel=config.selinux_relabel, fs_group=config.fs_group == "kubelet"
        )
        calls = DriverCalls(
            operations,
            facts=facts,
            backends=backends,
            handshakes=handshakes,
            capabilities=capabilities,
            state=lambda: self._state(installer, operations, handshakes),
        )
        server = AgentServer(calls.answer)
        known = KNOWN_PLUGIN_DIRECTORIES if config.use_known_plugin_dirs else ()
        places = install_places(config.volume_plugin_dirs, known=known)
        installer = DriverInstaller(places, server=server, handshakes=handshakes, clock=self._clock)
        return AgentParts(
            operations=operations,
            backends=backends,
            server=server,
            installer=installer,
            handshakes=handshakes,
            attachments=attachments,
        )

    def _facts(self, namespace: MountNamespace) -> AgentFacts:
        config = self._config
        roots = [str(path) for path in config.kubelet_root_dirs]
        real = {root: namespace.real_path(root) for root in roots}
        return AgentFacts(
            node=config.node_name,
            boot_id=config.boot_id,
            kubelet_roots={**{one: one for one in real.values()}, **real},
            mount_seconds=config.mount_seconds,
            unmount_seconds=config.unmount_seconds,
        )

    def _state(
        self, installer: DriverInstaller, operations: Operations, handshakes: Handshakes
    ) -> dict[str, Any]:
        """Return the state for ``status``."""
        return {
            "pid": os.getpid(),
            "node": self._config.node_name,
            "isReady": handshakes.first.is_set(),
            "directories": installer.state(),
            "volumes": operations.state(),
        }


def _report_ready(parts: AgentParts) -> Callable[[], Awaitable[None]]:
    async def report() -> None:
        await parts.handshakes.first.wait()
        notify("READY=1\nSTATUS=ready")
        log.info("The storage agent is ready")

    return report


@contextlib.asynccontextmanager
async def _background(
    works: list[tuple[str, Callable[[], Awaitable[None]]]], clock: Clock
) -> AsyncIterator[None]:
    """Run tasks until the block ends. A task that a bug ends is started again after a minute."""

    async def guarded(name: str, run: Callable[[], Awaitable[None]]) -> None:
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
