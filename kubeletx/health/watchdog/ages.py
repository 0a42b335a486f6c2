"""Watchdog of agents: how long ago each gave a sign of life, and the consequence. Pure.

    OK ─► WARN ─► ERROR ─► HIT, evidence is collected ─► one tick later: restart of the unit, or reboot
     ▲        sign of life       │
     └───────────────────────────┘

A sign is a touch file whose inode or time of change differs from that of the last tick, or a process that runs. Its age is
counted in ticks: times are compared for difference only, so a jump of the clock hits no agent.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ..config import read_section
from ..model import Complain

TOUCH: Final = "file"
"""Kind of an agent that touches a file; also the name of the directory in which it registers."""
PROCESS: Final = "pid"
"""Kind of an agent whose process has to run."""
FORGET_SECONDS: Final = 3600
"""Restarts of a unit count until there was none for so long."""


class WatchLevel(enum.StrEnum):
    """Condition of a watched agent, see the drawing at the top of this file."""

    OK = "ok"
    WARN = "warn"
    """No sign for longer than usual."""
    ERROR = "error"
    """No sign for so long that something is wrong."""
    HIT = "hit"
    """The limit is over."""


class WatchLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section ``watchdog.agents.NAME``. Ages of the last sign in seconds; `gone`: without a process until a hit.

    `unit`: service that is restarted `restarts` times before the node is rebooted; empty: the node is rebooted at once.
    Defaults of EVE, and of watchdog(8) for `gone`.
    """

    warn: int = 40
    error: int = 180
    hit: int = 300
    gone: int = 60
    unit: str = ""
    restarts: int = 3

    def __post_init__(self) -> None:
        if not 10 <= self.warn <= self.error <= self.hit:
            raise ValueError(f"10 <= warn {self.warn} <= error {self.error} <= hit {self.hit} does not hold")
        if self.gone < 10 or self.restarts < 0:
            raise ValueError(f"gone {self.gone} is less than 10, or restarts {self.restarts} less than 0")


class WatchedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One registration. `sign`: inode and time of the touch file, or ID and start of the process; None: there is none.

    `since`: second of the last sign. `restarts`: of its unit, the last one at second `restarted_at`.
    """

    sign: tuple[int, int] | None
    since: int
    level: WatchLevel = WatchLevel.OK
    restarts: int = 0
    restarted_at: int = 0


class WatchStep(enum.StrEnum):
    """Consequence of the present condition of an agent."""

    CHANGED = "changed"
    """Its level has changed."""
    COLLECT = "collect"
    """It was hit now: evidence is asked for."""
    RESTART = "restart"
    REBOOT = "reboot"


class WatchEvent(NamedTuple):
    """Consequence in this tick. `key`: kind and name, such as ``file/zedagent``. `age`: of the sign, in seconds."""

    key: str
    step: WatchStep
    age: int
    agent: WatchedAgent


def watch(
    before: Mapping[str, WatchedAgent],
    signs: Mapping[str, tuple[int, int] | None],
    limits: Mapping[str, WatchLimits],
    now: int,
) -> tuple[dict[str, WatchedAgent], list[WatchEvent]]:
    """Return all registered agents after a tick, and the consequences.

    `signs`: one for each registered agent, by its key. `limits`: by name of the agent; others have the defaults.
    """
    after: dict[str, WatchedAgent] = {}
    events: list[WatchEvent] = []
    for key, sign in signs.items():
        agent = before.get(key)
        if agent is None:
            after[key] = WatchedAgent(sign=sign, since=now)
            continue
        kind, _, name = key.partition("/")
        mine = limits.get(name, WatchLimits())
        is_alive = sign is not None and (kind == PROCESS or sign != agent.sign)
        since = now if is_alive else agent.since
        age = now - since
        level = _level(kind, age, mine)
        changed = replace(agent, sign=sign or agent.sign, since=since, level=level)
        step = None
        if level is WatchLevel.HIT and agent.level is WatchLevel.HIT:
            restarts = agent.restarts if now - agent.restarted_at < FORGET_SECONDS else 0
            step = WatchStep.REBOOT
            if mine.unit and restarts < mine.restarts:
                step = WatchStep.RESTART
                changed = WatchedAgent(sign=changed.sign, since=now, restarts=restarts + 1, restarted_at=now)
        elif level is not agent.level:
            step = WatchStep.COLLECT if level is WatchLevel.HIT else WatchStep.CHANGED
        after[key] = changed
        if step is not None:
            events.append(WatchEvent(key, step, age, changed))
    return after, events


def _level(kind: str, age: int, limits: WatchLimits) -> WatchLevel:
    if kind == PROCESS:
        return WatchLevel.OK if not age else WatchLevel.HIT if age >= limits.gone else WatchLevel.ERROR
    if age < limits.warn:
        return WatchLevel.OK
    if age < limits.error:
        return WatchLevel.WARN
    return WatchLevel.ERROR if age < limits.hit else WatchLevel.HIT


def read_limits(section: Any, complain: Complain) -> dict[str, WatchLimits]:
    """Return the limits of section ``watchdog`` by agent; `complain` gets a line for each that is wrong."""
    agents = section.get("agents", {}) if isinstance(section, dict) else section
    named = read_section(agents, dict[str, Any], "watchdog.agents", complain)
    return {
        name: read_section(value, WatchLimits, f"watchdog.agents.{name}", complain)
        for name, value in named.items()
    }
