"""Parts that the benchmarks of sessions share: the agent under a simulated core, and pods with applications.

The core runs in the benchmark's process, which also asks it for sessions; the agent is a process of its own. So the times
of the core are those at which its messages are handed to gRPC, and received from it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import kubeletx_session
import msgspec

from kubeletx.api.names import SESSIONS, STANDBY
from kubeletx_testing.fornaxcore import CoreSettings, FornaxCore, PodRequest, SessionRequest
from kubeletx_testing.lab import PrivateAgent, pod_manifest

from .lab import NODE, ROOT, BenchLab, manifest
from .session_agent import FILE_VARIABLE, Moments
from .standby_lab import MAX_PODS, QUARK

SECONDS: Final = 60.0
"""Deadline of a session or pod."""
MANY_SECONDS: Final = 600.0
_RESTS: Final = {SESSIONS: "true", STANDBY: "standby"}
_APPLICATION: Final = """\
import asyncio, kubeletx_session
async def opened(session): pass
asyncio.run(kubeletx_session.AsyncSessionClient(opened).run())
"""


class SessionAgent(PrivateAgent):
    """A private agent that notes moments of sessions; see `session_agent`."""

    def argv(self) -> list[str]:
        """Return the command line of `session_agent`."""
        return [sys.executable, "-m", "script.benchmarks.session_agent", *super().argv()[1:]]

    def moments(self) -> Moments:
        """Return what the last process noted, which has stopped."""
        return msgspec.json.decode(self._moments_path.read_bytes(), type=Moments)

    @property
    def _moments_path(self) -> Path:
        return self.lab.base_dir / "moments.json"


class SessionNode:
    """The agent under the core. `core`: runs in this event loop."""

    def __init__(self, bench: BenchLab, agent: SessionAgent, core: FornaxCore) -> None:
        self.bench = bench
        self.agent = agent
        self.core = core
        self._opened = 0

    async def until(self, holds: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
        """Wait until `holds` is true, looked at after each message to the core. Raises TimedOut."""
        await self.core.wait_for(holds, seconds, what)

    def are_in(self, state: str, ids: Sequence[str]) -> bool:
        """Return True if the core knows all these pods in this state."""
        return all((pod := self.core.state.pods.get(one)) and pod.state == state for one in ids)

    async def create(self, requests: Sequence[PodRequest], state: str) -> list[str]:
        """Create pods, and wait until the core knows all in this state; return their identifiers."""
        ids = [self.core.create_pod(one).id for one in requests]
        await self.until(partial(self.are_in, state, ids), f"{len(ids)} pods in state {state}", MANY_SECONDS)
        return ids

    def ask(self, pod: str) -> str:
        """Ask for a session on a pod; return its identifier."""
        self._opened += 1
        return self.core.open_session(SessionRequest(id=f"bench/s{self._opened}", pod=pod)).id

    async def open(self, pod: str) -> float:
        """Open a session, and return the milliseconds from SESSION_OPEN to its Available. Raises RuntimeError."""
        view = self.core.session(self.ask(pod))
        await self.until(lambda: view.available_at is not None or not view.is_live, view.id)
        if view.available_at is None or view.requested_at is None:
            raise RuntimeError(f"session {view.id} is {view.status}: {view.message}")
        return (view.available_at - view.requested_at) * 1000

    async def close_all(self, pod: str) -> None:
        """Close the sessions of a pod, and wait until it is frozen again."""
        views = [view for view in self.core.state.sessions.values() if view.pod == pod and view.is_live]
        for view in views:
            self.core.close_session(view.id)
        revision = None

        def is_frozen_again() -> bool:
            # The core may know the pod as it was before the sessions opened: only a later report counts.
            nonlocal revision
            if any(view.is_live for view in views):
                return False
            known = self.core.pod(pod)
            revision = known.revision if revision is None else revision
            return known.revision > revision and known.state == "Standby"

        await self.until(is_frozen_again, f"frozen pod {pod}")

    async def start(self) -> None:
        """Start the agent, and wait until the core may use the node."""
        await asyncio.to_thread(self.agent.start)
        await self.until(self.core.ready_nodes, "ready node")

    async def end(self) -> None:
        """Terminate all pods, and check that the node never broke the protocol. Raises RuntimeError."""
        for one in tuple(self.core.state.pods):
            self.core.terminate_pod(one)
        await self.until(lambda: not self.core.state.pods, "end of all pods", MANY_SECONDS)
        broken = [*self.core.history.gaps, *self.core.history.violations]
        if broken:
            raise RuntimeError(f"the core got a wrong order: {broken[:5]}")


@asynccontextmanager
async def session_node(bench: BenchLab) -> AsyncIterator[SessionNode]:
    """Context manager: a ready node under a core; its pods are removed afterwards."""
    settings = CoreSettings(create_seconds=MANY_SECONDS, open_seconds=30, has_line=False, keep_messages=False)
    async with FornaxCore(settings) as core:
        agent = SessionAgent(
            bench.lab,
            node_name=NODE,
            endpoints=f"container:{QUARK}:{bench.containerd.endpoint}?handler=runc",
            flags=(f"--max-pods={MAX_PODS}", f"--fornaxcore-url={core.address}"),
            env={FILE_VARIABLE: str(bench.lab.base_dir / "moments.json"), "PYTHONPATH": str(ROOT)},
        )
        node = SessionNode(bench, agent, core)
        try:
            await node.start()
            yield node
            await node.end()
        finally:
            await asyncio.to_thread(agent.stop)
            agent.remove_files()


def plain(name: str) -> PodRequest:
    """A pod whose sessions need no application, with the containers of all benchmarks."""
    return PodRequest(name=name, application="bench/plain", spec=manifest(name)["spec"])


def resting(name: str) -> PodRequest:
    """A sleeping pod that is frozen without sessions; its application runs elsewhere."""
    return _request(name, pod_manifest(name, spec={"hostNetwork": True}))


def with_application(name: str) -> PodRequest:
    """A pod that runs the SDK, with the Python of this process, and is frozen without sessions."""
    site = Path(grpc.__file__).parents[1]
    sdk = Path(kubeletx_session.__file__).parents[1]
    paths = {
        "/usr/lib": "/usr/lib",
        "/lib": "/usr/lib",
        "/lib64": "/usr/lib64",
        sys.base_prefix: sys.base_prefix,
    }
    mounted = {**paths, "/site": str(site), "/sdk": str(sdk)}
    volumes = [{"name": f"v{n}", "hostPath": {"path": path}} for n, path in enumerate(mounted.values())]
    mounts = [{"name": f"v{n}", "mountPath": path, "readOnly": True} for n, path in enumerate(mounted)]
    body = pod_manifest(
        name,
        command=(f"{sys.base_prefix}/bin/python3", "-c", _APPLICATION),
        container={"volumeMounts": mounts, "env": [{"name": "PYTHONPATH", "value": "/sdk:/site"}]},
        spec={"hostNetwork": True, "volumes": volumes},
    )
    return _request(name, body)


def _request(name: str, body: dict[str, Any]) -> PodRequest:
    return PodRequest(name=name, application="bench/app", spec=body["spec"], annotations=_RESTS)
