"""Simulated nodes in one process. They share the link of the agent; only their pods are fakes.

    python -m script.benchmarks.fornax_fleet --core HOST:PORT --nodes 500

A pod runs `POD_SECONDS` after its POD_CREATE, a session is available `SESSION_SECONDS` after its SESSION_OPEN; both as
in the simulation of the first implementation.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from kubeletx.api.waiting import SystemClock
from kubeletx.fornax.cores import parse_seeds
from kubeletx.fornax.mailbox import Mailbox
from kubeletx.fornax.node_actor import CoreSettings, NodeActor
from kubeletx.fornax.node_records import METADATA, NodeRecords
from kubeletx.fornax.stubs import fornax_session_pb2 as session_pb
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as k8s
from kubeletx.store import Store

SUFFIX = "fornax-serverless.centaurusinfra.io"
REVISION = f"noderevision.core.{SUFFIX}"
SESSIONS = f"applicationsession.core.{SUFFIX}"
POD_SECONDS = 0.25
SESSION_SECONDS = 0.003


class FakeContent:
    """Pods and sessions without runtimes. Implements what the node actor uses of `NodeContent`."""

    def __init__(self, mailbox: Mailbox, address: str) -> None:
        self.ready = asyncio.Event()
        self.ready.set()
        self.pods: dict[str, k8s.Pod] = {}
        self.sessions: dict[str, tuple[str, session_pb.ApplicationSession]] = {}
        """Pod and session by identifier of the session."""
        self._mailbox = mailbox
        self._address = address

    def change(self, id: str, pod: k8s.Pod) -> None:
        """Add or change a pod, and report it."""
        self.pods[id] = pod
        self._mailbox.pod(id)

    def node(self, revision: int) -> k8s.Node:
        node = k8s.Node()
        node.status.conditions.add(type="Ready", status="True")
        node.status.addresses.add(type="InternalIP", address=self._address)
        for name, amount in (("cpu", "16"), ("memory", "32Gi")):
            node.status.allocatable[name].string = amount
        return node

    def is_ready(self) -> bool:
        return True

    def pod_state(self, pod_id: str, revision: int) -> pb.PodState | None:
        pod = self.pods.get(pod_id)
        if pod is None:
            return None
        pod.metadata.annotations[REVISION] = str(revision)
        state = self._state(pod_id, revision)
        if pod.status.phase == "Succeeded":
            del self.pods[pod_id]
        return state

    def session_state(self, session_id: str, revision: int) -> pb.SessionState | None:
        found = self.sessions.get(session_id)
        return None if found is None else pb.SessionState(nodeRevision=revision, session=found[1])

    async def stored(self) -> None:
        """Do nothing: there is no database."""

    def pod_states(self, revision: int) -> list[pb.PodState]:
        return [self._state(pod_id, revision) for pod_id in self.pods]

    def _state(self, pod_id: str, revision: int) -> pb.PodState:
        nested = [
            pb.SessionState(nodeRevision=revision, session=one)
            for pod, one in self.sessions.values()
            if pod == pod_id
        ]
        running = pb.PodState.Running
        return pb.PodState(nodeRevision=revision, state=running, pod=self.pods[pod_id], sessionStates=nested)

    async def configure(self, configuration: pb.NodeConfiguration) -> None:
        """Accept every configuration."""

    async def forget_all(self) -> None:
        self.pods.clear()

    async def command(self, message: pb.FornaxCoreMessage, core: str) -> bool:
        later = asyncio.get_running_loop().call_later
        match message.WhichOneof("MessageBody"):
            case "podCreate":
                self.pods[message.podCreate.podIdentifier] = message.podCreate.pod
                later(POD_SECONDS, self._set_phase, message.podCreate.podIdentifier, "Running")
            case "podTerminate":
                self._set_phase(message.podTerminate.podIdentifier, "Succeeded")
            case "sessionOpen":
                opened = message.sessionOpen
                self.sessions[opened.sessionIdentifier] = (opened.podIdentifier, opened.session)
                later(SESSION_SECONDS, self._set_status, opened.sessionIdentifier, "Available")
            case "sessionClose":
                self._set_status(message.sessionClose.sessionIdentifier, "Closed")
        return False

    def _set_phase(self, pod_id: str, phase: str) -> None:
        if pod_id in self.pods:
            self.pods[pod_id].status.phase = phase
            self._mailbox.pod(pod_id)

    def _set_status(self, session_id: str, status: str) -> None:
        if session_id not in self.sessions:
            return
        pod_id, session = self.sessions[session_id]
        session.status.sessionStatus = status
        self._mailbox.session(session_id)
        live = [
            one
            for one, (pod, s) in self.sessions.items()
            if (pod, s.status.sessionStatus) == (pod_id, "Available")
        ]
        self.pods[pod_id].metadata.annotations[SESSIONS] = ",".join(live)
        self._mailbox.pod(pod_id)


class FleetNode:
    """One node: the real actor over fake pods."""

    def __init__(self, number: int, core: str, store: Store) -> None:
        address = f"192.0.2.{number % 250 + 1}"
        mailbox: Mailbox = Mailbox(SystemClock())
        self.identifier = f"fornax.centaurusinfra.io/node-{number}"
        self.content = FakeContent(mailbox, address)
        self.actor = NodeActor(
            self.content,  # type: ignore[arg-type] # a double with the methods that the actor calls
            mailbox,
            identity=pb.NodeIdentifier(ip=address, identifier=self.identifier),
            seeds=parse_seeds([core]),
            records=NodeRecords(store),
            settings=CoreSettings(),
            clock=SystemClock(),
        )

    @property
    def waiting(self) -> int:
        """Number of changes that the core has not acknowledged yet."""
        acknowledged = min((link.outbox.acknowledged for link in self.actor.links.values()), default=0)
        return self.actor.revisions.current - acknowledged


@asynccontextmanager
async def fleet(core: str, nodes: int) -> AsyncIterator[list[FleetNode]]:
    """Context manager: simulated nodes that connect to the core at this address, each with a database of its own."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="fornax-fleet-"))
        made = []
        for number in range(nodes):
            store = await Store.open(Path(directory) / f"{number}.db", [METADATA])
            stack.push_async_callback(store.close)
            made.append(FleetNode(number, core, store))
        tasks = [asyncio.create_task(one.actor.run(), name=one.identifier) for one in made]
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll until `holds`. Raises RuntimeError after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await poll(holds)
    except TimeoutError as error:
        raise RuntimeError(f"no {what} within {seconds:g} s") from error


async def poll(holds: Callable[[], bool]) -> None:
    """Wait until `holds`, and look again every half millisecond."""
    while True:
        if holds():
            return
        await asyncio.sleep(0.0005)


def all_ready(nodes: list[FleetNode]) -> bool:
    """Return True once each core knows that each node may get pods."""
    return all(
        node.actor.links and all(link.outbox.is_ready_reported for link in node.actor.links.values())
        for node in nodes
    )


async def _run(core: str, nodes: int) -> None:
    async with fleet(core, nodes) as made:
        await wait_until(partial(all_ready, made), 600, "ready nodes")
        print(f"{nodes} nodes are ready", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Run the nodes until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="script.benchmarks.fornax_fleet", description=__doc__)
    parser.add_argument("--core", required=True, metavar="HOST:PORT")
    parser.add_argument("--nodes", type=int, default=500)
    options = parser.parse_args()
    asyncio.run(_run(options.core, options.nodes))


if __name__ == "__main__":
    main()
