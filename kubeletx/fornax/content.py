"""`NodeContent`: the pods and sessions of this node as its cores see them."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable

import msgspec

from kubeletx.api import Clock
from kubeletx.kube.types.node import Node
from kubeletx.pods import PodManager, StatusBoard
from kubeletx.store import Store

from .stubs import fornaxcore_pb2 as pb
from .stubs import k8s_core_v1_pb2 as core


class CommandAnswer(enum.Enum):
    """Next step of the node actor after a command."""

    NONE = "none"
    """Nothing: changes are reported through `on_pod` and `on_session`, now or later."""
    FULL_SYNC = "full sync"
    """Send a full list, since the core has pods or sessions that this node does not have."""


class ContentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the node for its cores.

    `identifier`: identifier of the node, namespace/name. `host_ip`: address of the node for host ports.
    `liveness_seconds`: time in which the containers of a new pod must become ready once they were started.
    """

    identifier: str
    host_ip: str
    liveness_seconds: float = 60.0


class ContentServices(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the agent that `NodeContent` uses. `watch_node`: yields the Node after each change, and at once."""

    store: Store
    clock: Clock
    pods: PodManager
    board: StatusBoard
    watch_node: Callable[[], AsyncIterator[Node]]


class NodeContent:
    """The pods and sessions of this node as its cores see them. The node actor uses it; one event loop."""

    def __init__(
        self,
        services: ContentServices,
        settings: ContentSettings,
        *,
        on_pod: Callable[[str], None],
        on_session: Callable[[str], None],
        on_node: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_pod`, `on_session`: called with an identifier, namespace/name, when there is something to report.

        `on_node`: called when the Node changed.
        """
        self.services = services
        self.settings = settings
        self.ready = asyncio.Event()
        """Set once the stored pods are loaded and compared with the runtimes; before this no list is complete."""
        self._on_pod = on_pod
        self._on_session = on_session
        self._on_node = on_node

    async def run(self) -> None:
        """Compare the stored pods with the runtimes, set `ready`, then run the pods' actors until cancelled."""
        raise NotImplementedError

    def node(self, revision: int) -> core.Node:
        """Return the Node with its state at `revision`."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Return True if the Node has condition Ready with status True."""
        raise NotImplementedError

    def pod_state(self, pod_id: str, revision: int) -> pb.PodState | None:
        """Return the pod's state, changed last at `revision`; None if the pod is unknown."""
        raise NotImplementedError

    def session_state(self, session_id: str, revision: int) -> pb.SessionState | None:
        """Return the session's state, changed last at `revision`; None if the session is unknown."""
        raise NotImplementedError

    def pod_states(self, revision: int) -> list[pb.PodState]:
        """Return the states of all pods with their sessions; each keeps the revision of its last change.

        `revision`: revision of the list, which pods get that were not reported since the start of the agent.
        """
        raise NotImplementedError

    async def configure(self, configuration: pb.NodeConfiguration) -> None:
        """Apply the cluster domain and start the daemon pods; return when the configuration is stored and applied."""
        raise NotImplementedError

    async def command(self, message: pb.FornaxCoreMessage, core: str) -> CommandAnswer:
        """Carry out a checked command about a pod or a session. `core`: name of the core, for the log.

        Returns once the command is stored and handed over to the actor of its pod.
        """
        raise NotImplementedError

    async def forget_all(self) -> None:
        """Remove all pods that cores created on this node, and all that is stored about them."""
        raise NotImplementedError
