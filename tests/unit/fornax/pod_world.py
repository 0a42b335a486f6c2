"""A node with pods and sessions of a core: real pod manager, sessions and content over a fake runtime and a fake clock.

`World.running` is one life of the agent. Reports get revisions as the node actor gives them, and are kept by identifier.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from kubeletx.api import PodUid
from kubeletx.fornax import names
from kubeletx.fornax.content import NodeContent
from kubeletx.fornax.mailbox import Mailbox, NodeChange
from kubeletx.fornax.pods.actor import CoreServices
from kubeletx.fornax.pods.records import POD_METADATA, CorePodRecords
from kubeletx.fornax.pods.registry import CorePods
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as core
from kubeletx.kube.types.node import Node as KubeNode
from kubeletx.kube.types.node import NodeCondition, NodeStatus
from kubeletx.pods import Evacuation
from kubeletx.pods.model.sources import FORNAX
from kubeletx.sessions.model import SessionLimits
from kubeletx.sessions.records import SESSION_TABLES, SessionRecords
from kubeletx.sessions.service import Sessions, access_to
from kubeletx.sessions.stubs import session_service_pb2 as ss
from tests.unit.pods.manager_model import Node

NODE = "fornax.centaurusinfra.io/node-1"
HOST_IP = "192.0.2.7"


def a_pod(
    name: str = "web", *, image: str = "busybox", ports: tuple[int, ...] = (), **notes: str
) -> core.Pod:
    """A pod as a core sends it; `notes`: annotations without the common end of their names."""
    pod = core.Pod()
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "apps", f"uid-{name}"
    pod.metadata.labels["application.core.fornax-serverless.centaurusinfra.io"] = "apps/game"
    for key, value in notes.items():
        pod.metadata.annotations[getattr(names, key)] = value
    pod.spec.restartPolicy = "Never"
    container = pod.spec.containers.add(name="main", image=image)
    for port in ports:
        container.ports.add(containerPort=port, protocol="TCP")
    return pod


class Reports(Mailbox):
    """Reports every change at once."""

    def __init__(self, world: World) -> None:
        super().__init__(world.node.clock)
        self._world = world

    def changed(self, what: NodeChange, *, soon: bool = False) -> None:
        self._world.report_change(what, soon=soon)


class World:
    """One node of a core. `pods`, `sessions`: all reports by identifier, the newest last."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.node = Node(root)
        self.node.more_tables = (POD_METADATA, SESSION_TABLES)
        self.settings = settings
        self.limits = SessionLimits(liveness_seconds=3600.0)
        self.busy_ports: set[int] = set()
        self.is_ready = True
        self.pod_cidrs: list[tuple[str, ...]] = []
        self.revision = 0
        self.pods: defaultdict[str, list[pb.PodState]] = defaultdict(list)
        self.sessions: defaultdict[str, list[pb.SessionState]] = defaultdict(list)
        self.awaited: list[str] = []
        """States of pods and statuses of sessions that were reported at once."""
        self.core_pods: CorePods
        self.content: NodeContent
        self.room: Sessions

    @contextlib.asynccontextmanager
    async def running(self, *, configured: bool = True, **life: Any) -> AsyncIterator[NodeContent]:
        async with self.node.running(**life) as manager:
            clock, store = self.node.clock, self.node.store

            self.room = Sessions(
                pods=access_to(manager),
                records=SessionRecords(store, clock),
                clock=clock,
                limits=self.limits,
            )
            board = self.node.services.board
            board.subscribe(self.room.pod_changed)
            self.node.evacuations[:] = [
                Evacuation(is_needed=lambda uid: bool(self.room.of_pod(uid)), run=self.room.evacuate)
            ]
            await self.room.load()
            mailbox = Reports(self)
            self.core_pods = CorePods(
                CoreServices(
                    clock=clock,
                    manager=manager,
                    board=board,
                    sessions=self.room,
                    records=CorePodRecords(store),
                    node=NODE,
                    node_name="n",
                    host_ip=HOST_IP,
                    is_port_free=lambda port: port not in self.busy_ports,
                    **self.settings,
                ),
                changed=mailbox.pod,
            )
            self.content = NodeContent(
                self.core_pods,
                mailbox,
                watch_node=self._watch_node,
                apply_pod_cidrs=self._apply_pod_cidrs,
            )
            self.node.cluster[FORNAX] = self.core_pods.objects
            await self.core_pods.load()
            self.core_pods.recovered()
            self.room.ask_again()
            tasks = [asyncio.create_task(one.run()) for one in (self.room, self.core_pods, self.content)]
            try:
                await self.until(self.content.ready.is_set)
                if configured:
                    await self.content.configure(pb.NodeConfiguration(clusterDomain="cluster.local"))
                yield self.content
                assert not any(task.done() for task in tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_node(self) -> AsyncIterator[KubeNode]:
        status = "True" if self.is_ready else "False"
        yield KubeNode(status=NodeStatus(conditions=(NodeCondition(type="Ready", status=status),)))

    async def _apply_pod_cidrs(self, cidrs: Sequence[str]) -> None:
        self.pod_cidrs.append(tuple(cidrs))

    def report_change(self, what: NodeChange, *, soon: bool) -> None:
        """Report an object as the node actor does, but at once; an answer has no revision of its own."""
        match what.kind:
            case "pod":
                self.revision += 1
                state = self.content.pod_state(what.id, self.revision)
                if state is not None:
                    self.pods[what.id].append(state)
                    self.awaited += [] if soon else [pb.PodState.State.Name(state.state)]
            case "session" | "answer":
                self.revision += what.kind == "session"
                find = self.content.session_state if what.kind == "session" else self.content.refused_session
                session = find(what.id, self.revision)
                if session is not None:
                    self.sessions[what.id].append(session)
                    self.awaited += [] if soon else [session.session.status.sessionStatus]

    # --- commands ---

    async def send(self, kind: pb.MessageType, **body: Any) -> bool:
        return await self.content.command(pb.FornaxCoreMessage(messageType=kind, **body), "core-1")

    async def create(self, pod: core.Pod, **fields: Any) -> str:
        """Send a POD_CREATE; returns the pod's identifier."""
        pod_id = f"{pod.metadata.namespace}/{pod.metadata.name}"
        await self.send(pb.POD_CREATE, podCreate=pb.PodCreate(podIdentifier=pod_id, pod=pod, **fields))
        return pod_id

    async def start(self, pod: core.Pod, state: str = "Running", **fields: Any) -> str:
        """Create a pod and wait until it is in this state."""
        pod_id = await self.create(pod, **fields)
        await self.until_pod(pod_id, state)
        return pod_id

    async def terminate(self, pod_id: str) -> bool:
        return await self.send(pb.POD_TERMINATE, podTerminate=pb.PodTerminate(podIdentifier=pod_id))

    async def hibernate(self, pod_id: str) -> bool:
        return await self.send(pb.POD_HIBERNATE, podHibernate=pb.PodHibernate(podIdentifier=pod_id))

    async def open(self, name: str, pod_id: str = "apps/web", **spec: Any) -> str:
        """Send a SESSION_OPEN; returns the session's identifier."""
        message = pb.SessionOpen(sessionIdentifier=f"apps/{name}", podIdentifier=pod_id)
        metadata = message.session.metadata
        metadata.name, metadata.namespace, metadata.uid = name, "apps", f"uid-{name}"
        metadata.annotations[names.POD] = pod_id
        for field, value in {"applicationName": "apps/game", **spec}.items():
            setattr(message.session.spec, field, value)
        assert not await self.send(
            pb.SESSION_OPEN, sessionOpen=message
        )  # a full list would replace the answer
        return message.sessionIdentifier

    async def close(self, session_id: str, pod_id: str = "apps/web") -> bool:
        body = pb.SessionClose(sessionIdentifier=session_id, podIdentifier=pod_id)
        return await self.send(pb.SESSION_CLOSE, sessionClose=body)

    # --- the application in a pod ---

    def connect(self, name: str = "web") -> None:
        """Connect the application of a pod to the session service."""
        instance = self.room.ensure_instance(self.node.manager.workers[PodUid(f"uid-{name}")].desired.pod)
        instance.attach()

    def report(self, state: ss.SessionState, session_id: str, *clients: str, name: str = "web") -> None:
        """Report a state of a session as the application does."""
        instance = self.room.instance(PodUid(f"uid-{name}"))
        assert instance is not None
        status = ss.SessionStatus(
            sessionState=state, clientSession=[ss.ClientSession(clientIdentifier=one) for one in clients]
        )
        identifier = ss.SessionIdentifier(identifier=session_id)
        instance.received(
            ss.SessionMessage(
                sessionIdentifier=identifier, messageType=ss.SESSION_STATE, sessionStatus=status
            )
        )

    # --- what a core sees ---

    async def until(self, condition: Any, seconds: float = 120.0) -> None:
        await self.node.until(condition, seconds)

    async def until_pod(self, pod_id: str, state: str) -> pb.PodState:
        """Wait for a report of this state."""
        await self.until(lambda: self.states(pod_id)[-1:] == [state])
        return self.pods[pod_id][-1]

    async def until_session(self, session_id: str, status: str) -> pb.SessionState:
        await self.until(lambda: self.statuses(session_id)[-1:] == [status])
        return self.sessions[session_id][-1]

    def states(self, pod_id: str = "apps/web") -> list[str]:
        """States of the pod's reports, without repetitions."""
        return _changes(pb.PodState.State.Name(one.state) for one in self.pods[pod_id])

    def statuses(self, session_id: str) -> list[str]:
        return _changes(one.session.status.sessionStatus for one in self.sessions[session_id])

    def pod(self, pod_id: str = "apps/web") -> core.Pod:
        """The pod as last reported."""
        return self.pods[pod_id][-1].pod

    def listed(self) -> dict[str, pb.PodState]:
        """The full list by identifier."""
        return {
            f"{one.pod.metadata.namespace}/{one.pod.metadata.name}": one
            for one in self.content.pod_states(self.revision)
        }


def _changes(states: Any) -> list[str]:
    found: list[str] = []
    for state in states:
        if found[-1:] != [state]:
            found.append(state)
    return found
