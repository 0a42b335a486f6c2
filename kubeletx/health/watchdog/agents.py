"""Registrations and signs of life of agents below RUN, in the layout of EVE.

RUN/watchdog/file/NAME.touch   NAME is watched; it touches RUN/NAME.touch
RUN/watchdog/pid/NAME.pid      NAME is watched; RUN/NAME.pid holds the ID of its process
RUN/NAME.stack                 its stack, after SIGUSR1
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kubeletx.linux.files import read_regular, replace_unflushed, stamp_of
from kubeletx.linux.processes import ENDED, read_stat

from ..model import Begin, BootReason, Effect, OperationKind, RecordEvent, RestartUnit
from ..reasons import trim_stack
from .ages import (
    PROCESS,
    TOUCH,
    WatchedAgent,
    WatchEvent,
    WatchLevel,
    WatchStep,
    read_limits,
    watch,
)
from .evidence import KERNEL_LOG, ask_stack, out_of_memory, read_stack

MAX_AGENTS: Final = 256
_UNREADABLE: Final = -1
"""Stands for the ID in a pid file that never held one: bad input is no reason for a reboot."""
_SUFFIXES: Final = {TOUCH: ".touch", PROCESS: ".pid"}


class AgentWatch:
    """Looks at all registered agents once a tick. `section`: ``watchdog`` of the configuration. `keep`: for stacks."""

    def __init__(
        self,
        run: Path,
        keep: Path,
        section: Any,
        report: Callable[[str, str], object],
        *,
        kernel_log: Path = KERNEL_LOG,
    ) -> None:
        self._run, self._keep, self._report, self._kernel_log = run, keep, report, kernel_log
        self._limits = read_limits(section, self._complain)
        self._stacks: dict[str, str] = {}
        """What the stack files held before they were asked for, by agent."""
        self._pids: dict[str, int] = {}

    def tick(
        self, before: Mapping[str, WatchedAgent], now: int, *, is_busy: bool
    ) -> tuple[dict[str, WatchedAgent], list[Effect]]:
        """Return the agents and the consequences. `is_busy`: the boot ends, and agents with it; nothing is restarted."""
        after, events = watch(before, self._signs(), self._limits, now)
        effects: list[Effect] = []
        for event in events:
            if not is_busy or event.step in {WatchStep.CHANGED, WatchStep.COLLECT}:
                effects += self._follow(event)
        return after, effects

    def _follow(self, event: WatchEvent) -> list[Effect]:
        kind, _, name = event.key.partition("/")
        sign = f"has not touched {self._run / name}.touch" if kind == TOUCH else "has no process"
        what = f"agent {name} {sign} for {event.age} s"
        match event.step:
            case WatchStep.CHANGED if event.agent.level is WatchLevel.ERROR:
                return [RecordEvent("AgentSilent", what)]
            case WatchStep.CHANGED:
                # It may be slow again and again: that is no history of the node.
                if event.agent.level is WatchLevel.OK:
                    self._report("AgentAlive", f"agent {name} gives signs of life again")
                else:
                    self._report("AgentSlow", what)
                return []
            case WatchStep.COLLECT:
                self._stacks[name] = read_stack(self._run / f"{name}.stack")
                asked = ask_stack(self._pid(name))
                return [
                    RecordEvent(
                        "WatchdogHit", f"{what}; its stack {'is asked for' if asked else 'is not known'}"
                    )
                ]
        killed = out_of_memory(event.age, self._kernel_log)
        if killed:
            what += f"; {killed}"
        stack = read_stack(self._run / f"{name}.stack")
        if stack == self._stacks.pop(name, ""):
            stack = ""
        if stack:
            with suppress(OSError):
                replace_unflushed(self._keep / f"{name}.stack", stack.encode())
        if event.step is WatchStep.RESTART:
            limits = self._limits[name]
            count = f"restart {event.agent.restarts} of {limits.restarts}"
            return [
                RecordEvent("WatchdogRestart", f"{what}; {limits.unit}: {count}"),
                RestartUnit(limits.unit),
            ]
        hung = BootReason.WATCHDOG_HUNG if kind == TOUCH else BootReason.WATCHDOG_PID
        boot_reason = BootReason.OOM if killed else hung
        if event.agent.restarts:
            what += f"; a restart of its unit was tried {event.agent.restarts} times"
        return [
            Begin(kind=OperationKind.REBOOT, boot_reason=boot_reason, reason=what, stack=trim_stack(stack))
        ]

    def _signs(self) -> dict[str, tuple[int, int] | None]:
        signs: dict[str, tuple[int, int] | None] = {}
        for kind, suffix in _SUFFIXES.items():
            names = self._registered(kind, suffix)
            for name in names[:MAX_AGENTS]:
                signs[f"{kind}/{name}"] = (
                    stamp_of(self._run / f"{name}.touch") if kind == TOUCH else self._process(name)
                )
            if len(names) > MAX_AGENTS:
                self._complain(
                    f"{self._run}/watchdog/{kind}: has {len(names)} registrations; the first {MAX_AGENTS} count"
                )
        return signs

    def _registered(self, kind: str, suffix: str) -> list[str]:
        try:
            entries = os.listdir(self._run / "watchdog" / kind)
        except OSError:
            return []
        return sorted(
            entry.removesuffix(suffix) for entry in entries if entry.endswith(suffix) and entry[0] != "."
        )

    def _process(self, name: str) -> tuple[int, int] | None:
        pid = self._pid(name)
        if pid == _UNREADABLE:
            return pid, 0
        stat = read_stat(pid) if pid else None
        if pid is None or stat is None or stat.state in ENDED:
            return None
        return pid, stat.started_ticks

    def _pid(self, name: str) -> int | None:
        """Return the ID in the pid file; None without a file. Of rubbish the last good one, or _UNREADABLE."""
        path = self._run / f"{name}.pid"
        try:
            text = read_regular(path, 64).decode(errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            text = error.strerror or "unreadable"
        if text.isascii() and text.isdigit() and int(text) > 0:
            self._pids[name] = int(text)
        else:
            self._complain(f"{path}: {text!r} is not the ID of a process; the last good ID counts")
        return self._pids.get(name, _UNREADABLE)

    def _complain(self, problem: str) -> None:
        self._report("BadWatchdog", problem)
