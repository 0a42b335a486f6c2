"""The agent's side of the guardian (``kubeletx health``): it publishes and reads topics, and touches its watchdog file.

    KubeletxStatus    published every 10 s, and at once when it changes; then RUN/kubeletx.touch too
    NodeAgentStatus   DeviceReboot, DeviceShutdown or DevicePoweroff: all pods end (`AnnouncedShutdown`)
    HealthStatus      becomes node conditions
    ZbootStatus       the slots, for users

Topics are files in memory (RUN is a tmpfs), so the event loop reads and writes them itself: if it hangs, the signs of life
end.

An agent that was killed is still watched. Its start may take minutes, so `run` touches the file before the first `look`, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import Clock
from kubeletx.health.client import release, touch, touch_registered
from kubeletx.health.topics import (
    HEALTH_STATUS,
    KUBELETX_STATUS,
    NODE_AGENT_STATUS,
    ZBOOT_STATUS,
    HealthStatus,
    KubeletxStatus,
    NodeAgentStatus,
    Reader,
    ZbootStatus,
    path_of,
)
from kubeletx.linux.files import replace_unflushed

from ..parts.shutdown import AnnouncedShutdown

log = structlog.get_logger(__name__)

NAME: Final = "kubeletx"
LOOK_SECONDS: Final = 1.0
PUBLISH_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 60.0
"""Six ticks of the guardian."""
TICKED: Final = Path("kubeletx-health", "state")
"""File below RUN that the guardian writes at each tick. Its topics it writes only when they change."""


class EdgeView(msgspec.Struct, frozen=True, kw_only=True):
    """The guardian as the admin socket shows it. `health`, `node` None: not published. `slots`: in order of their labels.

    `silence`: why its status does not count; empty: it does.
    """

    health: HealthStatus | None
    node: NodeAgentStatus | None
    slots: tuple[ZbootStatus, ...]
    silence: str


class EdgeAgent:
    """Publishes the agent's status, and reads the guardian's. `look` is one round, `run` repeats it after the first."""

    def __init__(
        self,
        run: Path,
        *,
        clock: Clock,
        lock: AnnouncedShutdown,
        status: Callable[[], KubeletxStatus],
        on_health: Callable[[HealthStatus | None, str], object],
    ) -> None:
        """`run`: the guardian's ``--run-dir``. `on_health`: called with each new HealthStatus, None if it is gone, and with
        the reason for which it does not count, empty if it does.
        """
        self._run = run
        self._clock = clock
        self._lock = lock
        self._status = status
        self._on_health = on_health
        self._reader = Reader(run, run, (NODE_AGENT_STATUS, HEALTH_STATUS, ZBOOT_STATUS), self._complain)
        self._path = path_of(run, KUBELETX_STATUS, NAME)
        self._health: HealthStatus | None = None
        self._node: NodeAgentStatus | None = None
        self._slots: dict[str, ZbootStatus] = {}
        self._silence = ""
        self._ticked: tuple[int | None, float] = (None, clock.monotonic())
        """Last change of `TICKED`, and when it was first seen."""
        self._published: tuple[float, KubeletxStatus] | None = None
        self._problem = ""
        self._has_looked = False

    async def run(self) -> None:
        while True:
            if self._has_looked:
                self.look()
            else:
                self._touch_registered()
            await self._clock.sleep(LOOK_SECONDS)

    def look(self) -> None:
        self._has_looked = True
        self._reader.is_changed = True
        before = (self._health, self._silence)
        for update in self._reader.changes():
            if update.topic is HEALTH_STATUS:
                self._health = update.value
            elif update.topic is ZBOOT_STATUS:
                self._slots.pop(update.key, None)
                if update.value is not None:
                    self._slots[update.key] = update.value
            else:
                self._follow(update.value)
        self._silence = self._find_silence()
        if (self._health, self._silence) != before:
            self._on_health(self._health, self._silence)
        self._publish()

    def view(self) -> EdgeView:
        """Return what the guardian published last."""
        slots = tuple(slot for _, slot in sorted(self._slots.items()))
        return EdgeView(health=self._health, node=self._node, slots=slots, silence=self._silence)

    def close(self) -> None:
        """End the watch of this agent: its end is planned."""
        try:
            release(NAME, self._run)
        except OSError as error:
            self._complain(f"{self._run}: {error.strerror}")

    def _touch_registered(self) -> None:
        try:
            touch_registered(NAME, self._run)
        except OSError as error:
            self._complain(f"{self._run}: {error.strerror}")

    def _find_silence(self) -> str:
        try:
            stamp = (self._run / TICKED).stat().st_mtime_ns
        except OSError:
            stamp = None
        now = self._clock.monotonic()
        if stamp != self._ticked[0]:
            self._ticked = (stamp, now)
        is_silent = now - self._ticked[1] >= SILENT_SECONDS
        return f"the guardian has not ticked for {SILENT_SECONDS:g} s" if is_silent else ""

    def _follow(self, status: NodeAgentStatus | None) -> None:
        self._node = status
        flags = (status.device_reboot, status.device_shutdown, status.device_poweroff) if status else ()
        self._lock.announce(any(flags))

    def _publish(self) -> None:
        now, status = self._clock.monotonic(), self._status()
        if self._published is not None:
            at, before = self._published
            if status == before and now - at < PUBLISH_SECONDS:
                return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_unflushed(self._path, msgspec.json.encode(status), 0o644)
            touch(NAME, self._run)
        except OSError as error:
            self._complain(f"{self._path}: cannot be published: {error.strerror}")
            return
        self._published, self._problem = (now, status), ""

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning("Cannot use the topics of the guardian", err=problem)
