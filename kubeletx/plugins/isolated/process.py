"""`PluginProcess`: the child process of one distribution, and the objects of the agent that it may call."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Iterable
from contextvars import Context
from typing import Any, Final

import structlog

from kubeletx.api import ClusterObjects, KubeletxError, Records, Resources, Unavailable
from kubeletx.api.waiting import within
from kubeletx.node.cgroups.trees import CgroupTrees, cpu_shares
from kubeletx.runtimes.isolation.control import CONTROL
from kubeletx.runtimes.isolation.kept import KeptChild
from kubeletx.runtimes.isolation.notes import agent_objects
from kubeletx.runtimes.isolation.peer import Peer
from kubeletx.runtimes.isolation.process import ChildCgroup, ChildProcess, ChildUsage
from kubeletx.runtimes.isolation.remote import Served
from kubeletx.runtimes.plugins.identity import normal_name

from ..host import PluginHostParts
from ..settings import PluginLimits
from .control import CLUSTER, CONTROL_CLASS, RECORDS, ServicesInit

log = structlog.get_logger(__name__)

START_SECONDS = 30.0
"""Deadline of a child's start, with the import of its plugins and their factories."""
CLOSE_SECONDS = 1.0
PARENT: Final = "kubeletx-plugins"


class PluginProcess:
    """The child process of one distribution; starts it when it is called."""

    def __init__(
        self, distribution: str, init: ServicesInit, parts: PluginHostParts, variables: Collection[str] = ()
    ) -> None:
        """`init`: what the child imports and makes. `parts`: objects of the agent that its plugins may use.

        `variables`: as for `ChildProcess.start`.
        """
        self._variables = variables
        self._cgroup = parts.child_cgroup(distribution) if parts.child_cgroup is not None else None
        self._owner = f"plugin distribution {distribution}"
        self._init = init
        self._server = _objects(distribution, init.hooks, parts)
        self.kept = KeptChild(self._owner, self._start, self._prepare)
        self._starting: asyncio.Task[ChildProcess] | None = None
        self._sink_calls: tuple[Peer, asyncio.Task[None]] | None = None
        self._closed = False
        self.sinks = Served()
        """Sinks of the running pod sources, which the child may call."""

    async def call(
        self, target: str, method: str, args: tuple[Any, ...], result: Any, *, progress: None = None
    ) -> Any:
        """Call a method of an object in the child, started if it does not run; see `Peer.call`.

        Raises Unavailable while the child cannot be called.
        """
        peer = await self._peer()
        try:
            return await peer.call(target, method, args, result)
        except asyncio.CancelledError:
            self._check()  # the call's deadline may have expired because the child hangs
            raise
        except KubeletxError:
            if peer.is_closed:
                self._check()  # the delay before the next start counts from now
            raise

    async def start(self) -> None:
        """Start the child if it does not run. Errors are not raised: the next call has them."""
        with contextlib.suppress(KubeletxError):
            await self._peer()

    @property
    def is_starting(self) -> bool:
        """True while the child is started, or asked whether it still answers."""
        return self._starting is not None

    def usage(self) -> ChildUsage | None:
        return self.kept.usage()

    async def close(self) -> None:
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        child = self.kept.take()
        if child is not None:
            await child.stop(CLOSE_SECONDS)
        await self._end_sink_calls()

    async def _peer(self) -> Peer:
        if self._starting is None:
            with contextlib.suppress(Unavailable):
                return self.kept.running().peer
        self._check()
        if self._starting is None:
            raise Unavailable(f"{self._owner}: the agent ends")
        return (await asyncio.shield(self._starting)).peer

    def _check(self) -> None:
        """Begin a task that ends the child if it does not answer, and starts it if it does not run."""
        if self._starting is None and not self._closed:
            # Not in the context of the call, whose pod would be in the log lines of the process.
            self._starting = asyncio.create_task(
                self._answering(), name=f"{self._owner} start", context=Context()
            )
            self._starting.add_done_callback(self._checked)

    def _checked(self, task: asyncio.Task[ChildProcess]) -> None:
        self._starting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("Process of plugin is not there", owner=self._owner, err=str(error))

    async def _answering(self) -> ChildProcess:
        async with within(START_SECONDS, f"{self._owner}: its process did not start"):
            return await self.kept.answering()

    async def _start(self) -> ChildProcess:
        await self._end_sink_calls()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            child = await ChildProcess.start(
                self._owner,
                self._server,
                control=CONTROL_CLASS,
                descriptors=(theirs.fileno(),),
                variables=self._variables,
                ends_group=True,
                cgroup=self._cgroup,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        peer = Peer(f"the process of {self._owner}", reader, writer, self.sinks)
        self._sink_calls = (peer, asyncio.create_task(peer.run(), name=f"{self._owner} sinks"))
        return child

    async def _prepare(self, child: ChildProcess) -> None:
        await child.peer.call(CONTROL, "init", (self._init,), None)

    async def _end_sink_calls(self) -> None:
        if self._sink_calls is None:
            return
        peer, task = self._sink_calls
        self._sink_calls = None
        peer.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _objects(distribution: str, names: Iterable[str], parts: PluginHostParts) -> Served:
    """Return what the child may call: records, of which each registration in `names` has its own, and the cluster."""
    served = agent_objects(parts.events, distribution=distribution)
    for name in names:
        kind = f"plugin.{name}"
        served.put(RECORDS + kind, parts.records(kind), Records)
    if parts.cluster is not None:
        served.put(CLUSTER, parts.cluster, ClusterObjects)
    return served


def child_cgroups(trees: CgroupTrees, root: str, settings: PluginLimits) -> Callable[[str], ChildCgroup]:
    """Return the function that returns the cgroup of a distribution. `root`: cgroup below which it is made."""
    limits = Resources(
        memory_limit_bytes=settings.memory_limit_bytes,
        pids_limit=settings.process_limit,
        cpu_shares=cpu_shares(settings.cpu_weight),
        unified={"cpu.weight": str(settings.cpu_weight)},  # exact, which the way over shares is not
    )

    parent = f"{root.strip('/')}/{PARENT}".strip("/")

    def cgroup_of(distribution: str) -> ChildCgroup:
        path = f"{parent}/{normal_name(distribution)}"

        def join(pid: int) -> None:
            trees.remove(path)  # what an agent left that was killed
            trees.create(path)
            trees.limit(path, limits)
            for tree in trees.roots:
                (tree / path / "cgroup.procs").write_text(str(pid))

        def remove() -> None:
            trees.remove(path)
            for tree in trees.roots:
                with contextlib.suppress(OSError):  # it has the cgroups of other distributions
                    (tree / parent).rmdir()

        return ChildCgroup(join, remove)

    return cgroup_of
