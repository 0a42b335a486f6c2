"""`NodeActor`: the node under its cores: registration, configuration, commands, and reports with revisions.

    Link (one per core) ── messages ──► queue ──► _commands ──► NodeContent.command               (quick; actors do the work)
    NodeContent ── on_pod, on_session, on_node ──► Mailbox ──► _reports: number, serialise once ──► outbox of every link
    NODE_CONFIGURATION ──► _apply, a task of its own ──► NODE_READY

No core is connected before stored pods are loaded and compared with the runtimes, so that no core ever gets an
incomplete list. A number is taken from `Revisions` without another task in between, and goes to every core; a core that
cannot take it gets a full state instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, Unavailable

from .changes import Kind, Step
from .content import NodeContent
from .cores import Core, Cores, Role, parse_owners
from .link import Link, LinkSettings
from .mailbox import Mailbox, NodeChange
from .node_machine import NodeEvent, NodeMachine, NodeState
from .node_object import fingerprint, finish_node, full_state
from .node_records import NodeRecords
from .revisions import Revisions
from .stubs import fornaxcore_pb2 as pb
from .stubs import k8s_core_v1_pb2 as k8s

log = structlog.get_logger(__name__)

AHEAD = 64
"""Changes that may wait for the fastest core; later ones get no number yet, so that an object that changes again is
reported once."""
MAX_MESSAGES = 1_000
"""Messages of cores that may wait; a link reads no more until there is room."""


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the node under its cores, in seconds.

    `state_seconds`: how often each core gets a full state without a change. `look_seconds`: how often changes of the node
    and unreachable owners are looked for. `fallback_seconds`: how long no owner may be reached before the seeds are
    connected too.
    """

    link: LinkSettings = LinkSettings()
    state_seconds: float = 60.0
    look_seconds: float = 5.0
    fallback_seconds: float = 60.0
    block: int = 1_000


class NodeActor:
    """The node under its cores. `run` is its task; `close` comes after it."""

    def __init__(
        self,
        content: NodeContent,
        mailbox: Mailbox,
        *,
        identity: pb.NodeIdentifier,
        seeds: Sequence[Core],
        records: NodeRecords,
        settings: CoreSettings,
        clock: Clock,
    ) -> None:
        """`mailbox`: the one to which `content` reports its changes."""
        self.machine = NodeMachine()
        self.links: dict[str, Link] = {}
        self.revisions = Revisions(records, block=settings.block)
        self.identity = identity
        self.cores = Cores(seeds)
        self._content = content
        self._mailbox = mailbox
        self._messages: asyncio.Queue[tuple[Link, pb.FornaxCoreMessage]] = asyncio.Queue(MAX_MESSAGES)
        self._records = records
        self._settings = settings
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._shown = b""
        """Fingerprint of the Node that was reported last."""
        self._applied = b""
        self._pending: bytes | None = None
        """Configuration to apply next."""
        self._applying: asyncio.Task[None] | None = None
        self._with_seeds = False
        self._owner_seen_at = 0.0
        self._progress = asyncio.Event()
        self._may_settle = False

    async def run(self) -> None:
        """Connect the node to its cores and work until cancelled. Raises Unavailable if the database cannot be read."""
        self.machine = NodeMachine()
        await self._content.ready.wait()
        is_known = await self.revisions.load()
        if not is_known:
            log.info("Registering as a new node: pods that cores created on it earlier are removed")
            await self._content.forget_all()
            await self.revisions.settle()
        self.cores.owners = await self._stored_owners()
        await self._try_to_save_cores()
        self.machine.step(NodeEvent.LOADED)
        self._shown = fingerprint(self._node(0))
        self._may_settle = True
        self._owner_seen_at = self._clock.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                # In force until a core sends another one, and while no core can be reached.
                if self.revisions.configuration:
                    self._begin_to_apply(self.revisions.configuration)
                self._connect()
                group.create_task(self._commands(), name="fornax-commands")
                group.create_task(self._reports(), name="fornax-reports")
                group.create_task(self._look(), name="fornax-look")
                group.create_task(self._repeat_state(), name="fornax-state")
        finally:
            self._group, self._applying, self._pending = None, None, None
            self.links.clear()
            self._tasks.clear()
            self.machine.step(NodeEvent.STOP)

    async def close(self) -> None:
        """Store the exact revision, so that the next start continues with the next number."""
        if self._may_settle:
            try:
                await self.revisions.settle()
            except Unavailable as error:
                log.warning("Failed to store the node's revision", err=str(error))

    @property
    def is_ready(self) -> bool:
        """True if the node is configured and its condition Ready is True."""
        return self.machine.state is NodeState.READY and self._content.is_ready()

    # --- messages to the cores ---

    async def _build(self, step: Step) -> tuple[bytes, int]:
        message = pb.FornaxCoreMessage(nodeIdentifier=self.identity)
        revision = step.revision
        if step.kind is Kind.ANSWER:
            refused = self._content.refused_session(step.session, revision)
            if refused is None:
                return b"", revision
            message.messageType = pb.SESSION_STATE
            message.sessionState.CopyFrom(refused)
        elif step.kind is Kind.REGISTER:
            message.messageType = pb.NODE_REGISTER
            message.nodeRegistry.CopyFrom(pb.NodeRegistry(nodeRevision=revision, node=self._node(revision)))
        else:
            await self._content.stored()
            revision = self.revisions.current
            pods = self._content.pod_states(revision)
            message = full_state(step.kind, self.identity, self._node(revision), revision, pods)
        return message.SerializeToString(), revision

    def _node(self, revision: int) -> k8s.Node:
        return finish_node(self._content.node(revision), self.identity, is_ready=self.is_ready)

    async def _reports(self) -> None:
        is_postponed = False
        while True:
            await self._wait_for_room()
            changed = await self._mailbox.next_change()
            before = self.revisions.current
            try:
                await self._report(changed)
                is_postponed = is_postponed and self.revisions.current == before
            except Unavailable as error:
                if not is_postponed:
                    log.warning("Postponed reports: no revision could be stored", err=str(error))
                is_postponed = True
                self._mailbox.changed(changed)
                await self._clock.sleep(1.0)  # all other reports need a revision, too
            except Exception:
                log.exception("Failed to report a change with a bug", what=changed.id)
            await asyncio.sleep(0)  # the links send between two reports

    async def _wait_for_room(self) -> None:
        """Wait while every connected core has changes to take. One slow core alone delays nothing."""
        while True:
            queues = [len(link.outbox) for link in self.links.values() if link.is_connected]
            if not queues or min(queues) < AHEAD:
                return
            self._progress.clear()
            await self._progress.wait()

    async def _report(self, changed: NodeChange) -> None:
        match changed.kind:
            case "node":
                await self._report_node()
                return
            case "answer":
                for link in self.links.values():
                    link.outbox.answer(changed.id)
                return
        number = await self.revisions.prepare()
        message = pb.FornaxCoreMessage(nodeIdentifier=self.identity)
        if changed.kind == "pod":
            pod = self._content.pod_state(changed.id, number)
            if pod is None:
                return
            message.messageType = pb.POD_STATE
            message.podState.CopyFrom(pod)
        else:
            session = self._content.session_state(changed.id, number)
            if session is None:
                return
            message.messageType = pb.SESSION_STATE
            message.sessionState.CopyFrom(session)
        self.revisions.take()
        data = message.SerializeToString()
        for link in self.links.values():
            link.outbox.add(number, data)

    async def _report_node(self) -> None:
        """Send a full state with the next number if the Node has changed."""
        if fingerprint(self._node(0)) == self._shown:
            return
        await self.revisions.prepare()
        self._shown = fingerprint(self._node(0))
        self.revisions.take()
        for link in self.links.values():
            link.outbox.node_is_ready = self.is_ready
            link.outbox.request_full()

    # --- messages of the cores ---

    async def _received(self, link: Link, message: pb.FornaxCoreMessage) -> None:
        await self._messages.put((link, message))

    async def _commands(self) -> None:
        while True:
            link, message = await self._messages.get()
            try:
                await self._command(link, message)
            except KubeletxError as error:
                link.refuse(str(error))
                link.outbox.request_full()
            except Exception:
                log.exception("Failed to handle a message of a FornaxCore", core=link.core.address)
                link.outbox.request_full()

    async def _command(self, link: Link, message: pb.FornaxCoreMessage) -> None:
        """Carry out a command, then the ownership inside it; the first command of a new owner needs it before."""
        if not message.HasField("ownership"):
            await self._carry_out(link, message)
        elif self.cores.may_command(link.core.address):
            try:
                await self._carry_out(link, message)
            finally:
                await self._change_owners(message.ownership)
        else:
            await self._change_owners(message.ownership)
            await self._carry_out(link, message)

    async def _carry_out(self, link: Link, message: pb.FornaxCoreMessage) -> None:
        address = link.core.address
        match message.messageType:
            case pb.FORNAX_CORE_CONFIGURATION:
                await self._change_owners(message.fornaxCoreConfiguration)
            case pb.NODE_FULL_SYNC:
                link.outbox.request_full()
            case pb.NODE_CONFIGURATION:
                self._configure(link, message.nodeConfiguration)
            case _ if self.cores.may_command(address):
                if await self._content.command(message, address):
                    link.outbox.request_full()
            case _:
                name = pb.MessageType.Name(message.messageType)
                owners = ", ".join(core.address for core in self.cores.owners)
                link.refuse(f"{name}: this core is not the primary of the node; its owners are {owners}")
                link.outbox.request_full()

    def _configure(self, link: Link, configuration: pb.NodeConfiguration) -> None:
        link.outbox.registered()
        if not self.cores.may_command(link.core.address):
            return
        data = configuration.SerializeToString(deterministic=True)
        is_applying = self._applying is not None
        if self.machine.state is NodeState.READY and data == self._applied and not is_applying:
            return
        self.machine.step(NodeEvent.CONFIGURATION)
        self._begin_to_apply(data)

    def _begin_to_apply(self, data: bytes) -> None:
        self._pending = data
        if self._applying is None and self._group is not None:
            self._applying = self._group.create_task(self._apply(), name="fornax-configuration")

    async def _apply(self) -> None:
        """Apply the newest configuration, and again while newer ones arrive."""
        event = NodeEvent.FAILED
        try:
            while self._pending is not None:
                data, self._pending = self._pending, None
                try:
                    await self._apply_one(data)
                    event = NodeEvent.APPLIED
                except KubeletxError as error:
                    log.warning("Failed to apply the configuration of a FornaxCore", err=str(error))
                    event = NodeEvent.FAILED
        finally:
            self._applying = None
        if self.machine.state is NodeState.REGISTERING:
            return  # it was the stored one; the node is ready when a core sends it
        self.machine.step(event)
        if self.machine.state is not NodeState.READY:
            for link in self.links.values():
                link.outbox.register_again()
        self._mailbox.node()

    async def _apply_one(self, data: bytes) -> None:
        if data != self._applied:
            self._applied = b""  # until all of it is applied, neither of the two is in force
            await self._content.configure(pb.NodeConfiguration.FromString(data))
            if data != self.revisions.configuration:
                await self.revisions.configure(data)
            self._applied = data

    # --- the set of cores ---

    async def _change_owners(self, configuration: pb.FornaxCoreConfiguration) -> None:
        """Change the owners; cores that stay are not disconnected. Raises InvalidConfig for an unusable message."""
        owners = parse_owners(configuration)
        if owners == self.cores.owners:
            return
        self.cores.owners = owners
        log.info("Changed the owners of the node", cores=",".join(core.address for core in owners))
        self._owner_seen_at = self._clock.monotonic()
        self._with_seeds = False
        self._connect()
        await self._try_to_save_cores()

    def _connect(self) -> None:
        """Connect to the wanted cores, disconnect from all others, and update the roles of connected cores."""
        wanted = self.cores.wanted(with_seeds=self._with_seeds)
        for address in self.links.keys() - wanted.keys():
            del self.links[address]
            self._tasks.pop(address).cancel()
        for address, core in wanted.items():
            if address not in self.links:
                self._start_link(core)
            link = self.links[address]
            link.core = core
            link.outbox.set_standby(core.role is Role.STANDBY)

    def _start_link(self, core: Core) -> None:
        assert self._group is not None
        link = self.links[core.address] = Link(
            core,
            self.identity,
            build=self._build,
            received=self._received,
            progressed=self._progress.set,
            settings=self._settings.link,
            clock=self._clock,
        )
        link.outbox.node_is_ready = self.is_ready
        task = self._group.create_task(link.run(), name=f"fornax-link-{core.address}")
        self._tasks[core.address] = task

    async def _look(self) -> None:
        while True:
            self._mailbox.node()
            now = self._clock.monotonic()
            if any(self.links[core.address].is_connected for core in self.cores.owners):
                self._owner_seen_at = now
            with_seeds = now - self._owner_seen_at >= self._settings.fallback_seconds
            if with_seeds is not self._with_seeds:
                self._with_seeds = with_seeds
                self._connect()
            await self._clock.sleep(self._settings.look_seconds)

    async def _repeat_state(self) -> None:
        while True:
            await self._clock.sleep(self._settings.state_seconds)
            for link in self.links.values():
                link.outbox.request_full()

    async def _stored_owners(self) -> tuple[Core, ...]:
        """Return the owners of the last run; none if the operator has changed the seeds since then."""
        stored = await self._records.list_cores()
        seeds = {core.address for core in stored if core.role is Role.SEED}
        if seeds != {seed.address for seed in self.cores.seeds}:
            return ()
        owners = (core for core in stored if core.role is not Role.SEED)
        return tuple(sorted(owners, key=lambda core: core.role is not Role.PRIMARY))

    async def _try_to_save_cores(self) -> None:
        """Store the cores. Without them, the next start begins with the seeds, so a full disk is no reason to stop."""
        try:
            await self._records.save_cores((*self.cores.seeds, *self.cores.owners))
        except Unavailable as error:
            log.warning("Failed to store the cores of the node", err=str(error))
