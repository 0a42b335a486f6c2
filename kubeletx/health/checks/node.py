"""Checks of the machine: disks, memory, CPU, pressure, clock, and programs."""

from __future__ import annotations

import os
from typing import ClassVar, Final, Literal

from msgspec.structs import replace

from .base import CheckOutcome, LookFacts, NodeCheck, amount, at_least, at_most, first_look

_TIMEX_BYTES: Final = 512
"""More than struct timex has."""
_TIMEX_STATUS: Final = 40
"""Offset of its field status on machines with 64 bits."""
_UNSYNCHRONISED: Final = 0x40


class DiskSpaceCheck(NodeCheck, frozen=True, kw_only=True, tag="disk-space"):
    """The file system of `path` has space for users other than root, and is not read-only."""

    path: str = "/persist"
    free: str = "5%"
    blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        amount(self.free, 0)

    def look(self, facts: LookFacts) -> CheckOutcome:
        status = os.statvfs(self.path)
        if status.f_flag & os.ST_RDONLY:
            return CheckOutcome(False, f"{self.path} is mounted read-only")
        return at_least(
            self.path, status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize, self.free
        )


class InodesCheck(DiskSpaceCheck, frozen=True, kw_only=True, tag="inodes"):
    """The file system of `path` has inodes. One without a fixed number of them passes."""

    def look(self, facts: LookFacts) -> CheckOutcome:
        status = os.statvfs(self.path)
        if not status.f_files:
            return CheckOutcome(True, f"{self.path} has no fixed number of inodes")
        return at_least(f"inodes of {self.path}", status.f_favail, status.f_files, self.free)


class AvailableMemoryCheck(NodeCheck, frozen=True, kw_only=True, tag="memory"):
    """Memory is available without swapping: MemAvailable of /proc/meminfo."""

    available: str = "5%"

    def __post_init__(self) -> None:
        amount(self.available, 0)

    def look(self, facts: LookFacts) -> CheckOutcome:
        lines = (line.split() for line in (facts.proc / "meminfo").read_text().split("\n"))
        values = {words[0]: int(words[1]) << 10 for words in lines if len(words) > 1}
        if not {"MemAvailable:", "MemTotal:"} <= values.keys():
            raise ValueError("/proc/meminfo has no MemAvailable")
        return at_least("memory", values["MemAvailable:"], values["MemTotal:"], self.available)


class CpuUseCheck(NodeCheck, frozen=True, kw_only=True, tag="cpu"):
    """Share of time in which CPUs are busy, from look to look: /proc/stat."""

    most: float = 95.0
    """Percent."""

    def look(self, facts: LookFacts) -> CheckOutcome:
        with (facts.proc / "stat").open() as file:
            # user nice system idle iowait irq softirq steal; guests are part of user
            times = [int(word) for word in file.readline().split()[1:9]]
        counters = {"all": sum(times), "idle": sum(times[3:5])}
        passed = facts.differences(counters)
        if passed is None or not passed["all"]:
            return first_look(counters)
        outcome = at_most("CPUs are busy for", 100 * (1 - passed["idle"] / passed["all"]), self.most)
        return replace(outcome, counters=counters)


class PressureCheck(NodeCheck, frozen=True, kw_only=True, tag="pressure"):
    """Share of time in which tasks stall for a resource: /proc/pressure. Source: kernel, accounting/psi.rst."""

    resource: Literal["cpu", "memory", "io"] = "memory"
    stall: Literal["some", "full"] = "some"
    window: Literal["avg10", "avg60", "avg300"] = "avg60"
    most: float = 50.0
    """Percent."""

    def look(self, facts: LookFacts) -> CheckOutcome:
        for line in (facts.proc / "pressure" / self.resource).read_text().split("\n"):
            words = line.split()
            values = dict(word.split("=", 1) for word in words[1:])
            if words[:1] == [self.stall] and self.window in values:
                what = f"pressure on {self.resource} ({self.stall} {self.window})"
                return at_most(what, float(values[self.window]), self.most)
        raise ValueError(f"/proc/pressure/{self.resource} has no {self.stall} {self.window}")


class ClockCheck(NodeCheck, frozen=True, kw_only=True, tag="clock"):
    """The kernel's clock is synchronised, whichever program does it. Source: adjtimex(2)."""

    def look(self, facts: LookFacts) -> CheckOutcome:
        import ctypes

        from kubeletx.linux.libc import call

        timex = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes 0: nothing is set
        call("adjtimex", timex)
        status = int.from_bytes(timex.raw[_TIMEX_STATUS : _TIMEX_STATUS + 4], "little")
        is_good = not status & _UNSYNCHRONISED
        return CheckOutcome(is_good, f"the clock is {'' if is_good else 'not '}synchronised")


class CommandCheck(NodeCheck, frozen=True, kw_only=True, tag="command"):
    """A program decides: exit code 0 is ok, 1 failed, any other and a missed deadline unknown; it prints the message.

    Source: custom plugins of node-problem-detector.
    """

    command: tuple[str, ...]
    blocks: ClassVar[bool] = True
    spare_seconds: ClassVar[float] = 5.0

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise ValueError("command is empty")

    def look(self, facts: LookFacts) -> CheckOutcome:
        from kubeletx.api.errors import TimedOut
        from kubeletx.linux.programs import run_blocking, tool_environment

        try:
            result = run_blocking(self.command, seconds=self.deadline, environment=tool_environment())
        except (TimedOut, OSError) as error:
            return CheckOutcome(None, str(error))
        ok = {0: True, 1: False}.get(result.exit_code)
        message = result.out.strip() or result.text
        return CheckOutcome(ok, message if ok is not None else f"exit code {result.exit_code}: {message}")
