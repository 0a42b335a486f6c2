"""The two runtimes of an attacked agent: CRI servers in this process, `sound` and `hostile`.

`sound` answers as containerd does. `hostile` does so too until it is given a `Behaviour`. Both keep their state
while the agent is killed and restarted, so what they hold afterwards shows what the agent did. Sandboxes get
loopback addresses, so that no probe or hook of a mutated pod reaches another machine.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from google.protobuf.message import Message

from kubeletx.cri.containerd import SERVER, SUBSCRIBE
from kubeletx.cri.methods import Method
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx_testing.cri_model import CriModel, Refusal
from kubeletx_testing.cri_server import FakeCriServer

T = TypeVar("T")

SOUND, HOSTILE = "sound", "hostile"


class Behaviour(Protocol):
    """Protocol of a hostile server's behaviour: it makes the answers and events."""

    async def answer(self, method: str, request: Message, model: CriModel) -> Message | bytes:
        """Return the answer as a message or as raw bytes. Raises Refusal for a gRPC error."""
        ...

    def events(self, model: CriModel) -> list[pb.ContainerEventResponse]:
        """Events to send in the next 10 ms."""
        ...


class _LoopbackModel(CriModel):
    """CRI state that gives each sandbox an address in 127.88.0.0/16 instead of 10.88.0.0/16."""

    def _run_sandbox(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        answer = super()._run_sandbox(request)
        network = self.sandboxes[answer.pod_sandbox_id].network
        if network.ip:
            network.ip = network.ip.replace("10.", "127.", 1)
        return answer


class HostileCriServer(FakeCriServer):
    """CRI server that answers by its `behaviour`; None: it answers as containerd does."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.model = _LoopbackModel()
        self.model.unimplemented.discard("GetContainerEvents")
        self.behaviour: Behaviour | None = None
        self.counts: Counter[str] = Counter()

    async def _serve_unary(self, method: Method[Any, Any], request: Message, context: Any) -> Message | bytes:
        self.counts[method.name] += 1
        behaviour = self.behaviour
        if behaviour is None or method in (SERVER, SUBSCRIBE):
            return await super()._serve_unary(method, request, context)
        try:
            return await behaviour.answer(method.name, request, self.model)
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.details)
            raise

    async def _note(self, method: Method[Any, Any], request: Message) -> None:
        """Drop recorded requests: an attack makes too many to keep."""
        self.calls.clear()
        await super()._note(method, request)

    async def send_events(self) -> None:
        """Send the behaviour's events every 10 ms, until cancelled."""
        while True:
            await asyncio.sleep(0.01)
            if self.behaviour is not None:
                for event in self.behaviour.events(self.model):
                    self.emit(event)


class Servers:
    """Context manager that runs both servers, in a thread with an event loop of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cri-servers", daemon=True)
        self.sound = HostileCriServer(directory)
        self.hostile = HostileCriServer(directory)
        self._sender: asyncio.Task[None] | None = None

    @property
    def endpoints(self) -> str:
        """Value for --container-runtime-endpoint."""
        return ";".join(
            f"container:{name}:{server.url}"
            for name, server in ((SOUND, self.sound), (HOSTILE, self.hostile))
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the servers' loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def look(self, question: Callable[[], T]) -> T:
        """Call `question` in the servers' thread, where their state may be read, and return its result."""

        async def ask() -> T:
            return question()

        return self.run(ask())

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _start(self) -> None:
        await self.sound.start()
        await self.hostile.start()
        self._sender = asyncio.create_task(self.hostile.send_events(), name="hostile-events")

    async def _stop(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
        self.hostile.behaviour = None
        await self.sound.stop()
        await self.hostile.stop()


def seeded(seed: int, *parts: object) -> random.Random:
    """Random generator for one attack and round: the same seed and parts give the same numbers."""
    return random.Random(":".join(map(str, (seed, *parts))))


def until(is_so: Callable[[], T], *, seconds: float) -> T | None:
    """Poll `is_so` until it is true; returns its value, or None after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := is_so():
            return value
        time.sleep(0.05)
    return None
