"""`ApiNode`: this machine's Node object in the API server.

    register (create, or bring labels and resources up to date) ─► watch of the own Node
         ▲                                                              │ what the API has
         └── if `register_again`: deleted   status now ─► compare ─► PATCH nodes/NAME/status, nodes/NAME

The status is computed every `update_seconds` and when a runtime changes. It is sent when it differs from the API
server's, and otherwise every `report_seconds`. Taints are set only at registration: NodeRestriction forbids a node to
change them later.

As with a kubelet, a Node that is deleted while the agent runs is registered again only at the agent's next start: a
Node that came back at once would have lost its cordon and the taints that others set. Until then the agent continues
if another client creates the Node.

Foreign changes of the Node, and with `register_again` its deletion, are corrected immediately the first time, then with
growing delays while the other writer continues (`ForeignWrites`). The node's own changes never wait.

Source: kubelet, pkg/kubelet/kubelet_node_status.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Clock, NotFound
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.backoff import run_sync_loop, server_backoff
from kubeletx.kube.client.resources import NODES
from kubeletx.kube.types.core import ObjectMeta
from kubeletx.kube.types.meta import is_older
from kubeletx.kube.types.node import Node, NodeStatus, Taint

from ..field_managers import tell_foreign_write
from ..foreign_writes import FIRST_SECONDS, ForeignWrites
from .patch import changes_of, is_given_up, metadata_patch, status_patch

_STATUS, _LABELS, _DELETION = "status", "labels", "deletion"

log = structlog.get_logger(__name__)


class NodePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the Node object. The default intervals are the kubelet's.

    `register`: create the Node if it does not exist. `taints`: set at the registration. `update_seconds`: interval at
    which the status is computed. `report_seconds`: interval at which an unchanged status is sent.
    """

    register: bool = True
    register_again: bool = False
    """True: a Node that is deleted while the agent runs is registered again at once."""
    taints: tuple[Taint, ...] = ()
    schedulable: bool = True
    """False: the node is registered as unschedulable."""
    external_cloud: bool = False
    """True: a cloud controller sets the Node's addresses, and they are not changed."""
    update_seconds: float = 10.0
    report_seconds: float = 300.0


class ApiNode:
    """Registers this machine's Node and reports its status and labels.

    Implements `ReflectorSink` for the watch of this Node. `run` is its only task.
    """

    def __init__(
        self,
        client: KubeClient,
        name: str,
        watch_node: Callable[[], AsyncIterator[Node]],
        *,
        clock: Clock,
        policy: NodePolicy,
    ) -> None:
        """`watch_node`: yields the Node object that this agent wants, at once and after each change of a condition."""
        self._client = client
        self._name = name
        self._watch_node = watch_node
        self._clock = clock
        self._policy = policy
        self._current: Node | None = None
        self._wanted: Node | None = None
        self._reported: Node | None = None
        """The last `_wanted` that was reported; None before the first report."""
        self._answered: tuple[NodeStatus, NodeStatus] | None = None
        """The last status that was sent, and the status in the API server's answer."""
        self._was_registered = False
        self._is_in_doubt = False
        """True after a list that contradicts a newer answer: the Node is read before the next comparison."""
        self._foreign = ForeignWrites(clock)
        self._reported_at = float("-inf")
        self._news = asyncio.Event()
        self._listeners: list[Callable[[Node | None], None]] = []
        self.registered = asyncio.Event()

    @property
    def current(self) -> Node | None:
        """The Node in the API server; None if there is none or it was not read yet."""
        return self._current

    def subscribe(self, listener: Callable[[Node | None], None]) -> None:
        """Call the listener with the Node at each change in the API server, and with None when it is deleted."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Read the Node from the API server now, since the watch may lag behind."""
        self.put(await self._client.get(NODES.path(name=self._name), Node))

    # --- ReflectorSink ---

    def replace(self, items: Sequence[Node], unreadable: Sequence[ObjectMeta]) -> None:
        """Store the Node from a complete list; an empty list means that the Node does not exist.

        A list from a cache may be older than the answer to this agent's last request. Without the Node, or with an
        older version of it, the list only makes the agent read the Node again: a version that it wrote itself is not a
        foreign write, and an API server that was restored from a backup has older versions.
        """
        if unreadable:
            return
        known = self._current
        if known is not None and (not items or is_older(items[0].metadata, known.metadata)):
            self._is_in_doubt = True
            self._news.set()
        else:
            self._set(items[0] if items else None)

    def put(self, item: Node) -> None:
        """Store the Node, unless a newer version is known: the watch may be behind answers to this agent's requests."""
        if self._current is None or not is_older(item.metadata, self._current.metadata):
            self._set(item)

    def drop(self, item: Node) -> None:
        """Handle the deletion of the Node; ignored if a Node with another UID was registered since."""
        if self._current is None or self._current.metadata.uid == item.metadata.uid:
            self._set(None)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Do nothing: the reflector has logged the problem, and the last decoded Node is kept."""

    # --- life ---

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._observe(), name="node-status")
            group.create_task(self._tick(), name="node-tick")
            await run_sync_loop(
                self._news,
                self._sync,
                self._client,
                self._clock,
                what="Failed to report the node",
                backoff=server_backoff(first=0.1, cap=7.0),
            )

    async def _observe(self) -> None:
        async for node in self._watch_node():
            self._wanted = node
            self._news.set()

    async def _tick(self) -> None:
        """Read the node's state every `update_seconds`: some of it changes without an event (images, versions)."""
        while True:
            await self._clock.sleep(self._policy.update_seconds)
            async for node in self._watch_node():
                self._wanted = node
                break
            self._news.set()

    async def _sync(self) -> None:
        wanted = self._wanted
        if wanted is None:
            return
        if self._is_in_doubt:
            await self._read()
        is_registered = self._current is not None and self.registered.is_set()
        if not is_registered and not await self._register(wanted):
            return
        current, reported = self._current, self._reported
        if current is None:
            return
        is_reported = await self._report_status(current, wanted, reported)
        is_reported &= await self._report_labels(self._current or current, wanted, reported)
        if is_reported:
            self._reported = wanted

    def _may_answer(self, what: str) -> bool:
        return self._foreign.may_answer(what, self._news.set)

    async def _read(self) -> None:
        try:
            node = await self._client.get(NODES.path(name=self._name), Node)
        except NotFound:
            node = None
        self._is_in_doubt = False
        self._set(node)

    async def _register(self, wanted: Node) -> bool:
        """Create the Node or read the existing one. Returns False if it was deleted and may not be created now."""
        path = NODES.path(name=self._name)
        self._reported = None
        if self._was_registered and not self._policy.register_again:
            node = self._current  # another client may have created it
            if node is None:
                return False
        elif self._was_registered and not self._may_answer(_DELETION):
            return False
        elif self._policy.register:
            fresh = replace(
                wanted,
                metadata=replace(wanted.metadata, uid="", creation_timestamp=None),
                spec=replace(
                    wanted.spec,
                    taints=(*self._policy.taints, *wanted.spec.taints),
                    unschedulable=not self._policy.schedulable,
                ),
            )
            try:
                node = await self._client.create(NODES.path(), fresh, Node)
                self._reported_at = self._clock.monotonic()
                log.info("Registered node", node=self._name)
            except AlreadyExists:
                node = await self._client.get(path, Node)
        else:
            try:
                node = await self._client.get(path, Node)
            except NotFound as error:
                raise NotFound(
                    f"node {self._name} is not in the API server and --register-node is false; create it"
                ) from error
        self._current = node
        self._was_registered = True
        self._foreign.settle(_DELETION)
        self.registered.set()
        self._tell()
        return True

    async def _report_status(self, current: Node, wanted: Node, reported: Node | None) -> bool:
        """Send the status if it differs from the API server's or the periodic report is due.

        A correction of another client's change may be delayed. `current`: the Node in the API server. `wanted`: the
        Node as it should be. `reported`: the Node as last reported; None before the first report. Returns False if the Node
        turned out to be deleted, otherwise True.
        """
        now, heartbeat = self._clock.monotonic(), self._clock.now()
        is_due = now - self._reported_at >= self._policy.report_seconds
        status = wanted.status
        if self._policy.external_cloud and current.status.addresses:
            status = replace(status, addresses=current.status.addresses)
        patch = status_patch(current.status, status, heartbeat=heartbeat, is_due=is_due)
        if patch is not None and not is_due and self._answered == (wanted.status, current.status):
            patch = None  # unchanged since the last answer: this API server does not store what still differs
        if patch is None:
            self._foreign.settle(_STATUS, is_answer=False)
            return True
        was_reported = reported is not None and not status_patch(
            reported.status, wanted.status, heartbeat=heartbeat, is_due=is_due
        )
        # The node controller missed heartbeats and changed the conditions; a kubelet corrects that within 10 s too.
        is_late = is_given_up(current.status, wanted.status) and now - self._reported_at >= FIRST_SECONDS
        is_news = not was_reported or is_late
        if not is_news and not self._may_answer(_STATUS):
            return True
        path = NODES.path(name=self._name, subresource="status")
        if not is_news:
            await self._tell_foreign(_STATUS, {"status": changes_of(patch, current.status)})
        self._current = await self._patch(path, {"status": patch}, Patch.STRATEGIC)
        self._foreign.settle(_STATUS, is_answer=not is_news)
        self._reported_at = now
        self._answered = (wanted.status, self._current.status) if self._current is not None else None
        return self._current is not None

    async def _report_labels(self, current: Node, wanted: Node, reported: Node | None) -> bool:
        """Send labels and annotations if they differ from the API server's.

        A correction of another client's change may be delayed. Arguments and result as in `_report_status`.
        """
        metadata = metadata_patch(current.metadata, wanted.metadata)
        if not metadata:
            self._foreign.settle(_LABELS, is_answer=False)
            return True
        is_news = reported is None or bool(metadata_patch(reported.metadata, wanted.metadata))
        if not is_news and not self._may_answer(_LABELS):
            return True
        if not is_news:
            await self._tell_foreign(_LABELS, {"metadata": metadata})
        path = NODES.path(name=self._name)
        self._current = await self._patch(path, {"metadata": metadata}, Patch.MERGE)
        self._foreign.settle(_LABELS, is_answer=not is_news)
        return self._current is not None

    async def _tell_foreign(self, what: str, patch: dict[str, Any]) -> None:
        path, wait = NODES.path(name=self._name), self._foreign.next_wait(what)
        await tell_foreign_write(self._client, path, f"node {self._name}", patch, next_wait=wait)

    async def _patch(self, path: str, value: object, kind: Patch) -> Node | None:
        try:
            return await self._client.patch(path, value, Node, kind=kind)
        except NotFound:  # deleted meanwhile: registered again at the next round
            self._set(None)
            return None

    def _set(self, node: Node | None) -> None:
        if node is None and self._current is not None:
            when = "now" if self._policy.register_again else "at the next start of kubeletx"
            log.warning("Node was deleted in the API server", node=self._name, registered_again=when)
        self._current = node
        if node is None:
            self.registered.clear()
        self._news.set()
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener(self._current)
