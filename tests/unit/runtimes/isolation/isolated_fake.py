"""Factories that the child process of the isolation tests imports by name."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import Conflict, Endpoint, Host, ObjectRef, PodUid, RuntimeHealth, RuntimeVersion, UnitId
from kubeletx.cri.tracing import CURRENT_SPAN
from kubeletx_testing.suite_fake import SuiteFakeRuntime
from kubeletx_testing.waiting import let_others_work

log = structlog.get_logger(__name__)


class Settings(msgspec.Struct, frozen=True, rename="camel"):
    """Settings of the test's plugin."""

    extra_image: str = "busybox"


class TroubledRuntime(SuiteFakeRuntime):
    """A fake that does what bad plugin code does, on request by the ids it is given."""

    def __init__(self, endpoint: Endpoint, settings: Settings | None, host: Host) -> None:
        super().__init__()
        self.name = endpoint.name
        self.host = host
        if settings is not None:
            self.backend.add_image(settings.extra_image)

    async def health(self) -> RuntimeHealth:
        """Records an event and a log line, asks the pod network, and answers."""
        self.host.events.record(
            ObjectRef(kind="Runtime", name=self.name), type="Normal", reason="Asked", message="hi"
        )
        log.info("Asked plugin for health", pid=os.getpid())
        if self.host.pod_network is not None:
            await self.host.pod_network.add(PodUid("u"), "n", "ns", "/ns", [{"hostPort": 1}])
        return await super().health()

    async def version(self) -> RuntimeVersion:
        """Returns the span of this call and of the next ones that it makes."""
        span = CURRENT_SPAN.get()
        same = await span.call("x", super().version) if span is not None else await super().version()
        return replace(same, name=span.traceparent if span is not None else "no span")

    async def start_unit(self, unit_id: UnitId) -> None:
        """Crashes, blocks, or raises an error with data of its own."""
        match unit_id:
            case "crash":
                os._exit(3)
            case "block":
                time.sleep(1000)  # noqa: ASYNC251 - what this test is about
            case "hang":
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    self.backend.add_image("cancelled")
                    raise
            case "own-error":
                raise OwnError("mine", 7)
        await super().start_unit(unit_id)
        if self.backend.units[unit_id].summary.name == "chatty":
            self.ticking = asyncio.create_task(self.tick(unit_id))

    async def tick(self, unit_id: UnitId) -> None:
        """Print again and again."""
        while unit_id in self.backend.units and self.backend.units[unit_id].summary.state.is_alive:
            self.backend.write_log(unit_id, b"tick\n")
            await let_others_work()


class OwnError(Conflict):
    """An error that carries data."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message, reason="Own")
        self.number = number


def make(endpoint: Endpoint, settings: Any, host: Host) -> TroubledRuntime:
    """The factory."""
    return TroubledRuntime(endpoint, settings, host)
