"""`Freezer`: freezes and thaws all processes of one container by the freezer of its cgroup.

                    cgroup v1, freezer.state        cgroup v2, cgroup.freeze and cgroup.events
    freeze          write FROZEN                    write 1
    is it frozen    FREEZING, then FROZEN           frozen 0, then frozen 1
    thaw            write THAWED                    write 0

A freeze lasts until each thread has reached a point where it can stop, usually less than a millisecond. A thread in
uninterruptible sleep (state D, for example while it waits for a disk) reaches none until it wakes up. If a container
is not frozen at the deadline, it is thawed again.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from kubeletx.api import Clock, Conflict, Internal, KubeletxError, NotFound, PermissionDenied, Unsupported
from kubeletx.linux.processes import read_stat

FREEZE_SECONDS = 5.0
"""Deadline of freezing one container."""
THAW_SECONDS = 2.0
_FIRST_LOOK_SECONDS = 0.0002
_LONGEST_LOOK_SECONDS = 0.02
_LOOKS_BEFORE_THAW = 8
"""Number of looks at a v1 cgroup that is FREEZING before it is thawed for an instant and frozen again."""
_SETTLE_SECONDS = 0.02
"""Time for thawed threads to leave state D, before the cause of a failed freeze is read."""
_NAMED_THREADS = 3
_GONE = (FileNotFoundError, ProcessLookupError)
"""Errors of a cgroup that was removed: on open, and on an open file (`_is_gone` also checks ENODEV)."""


class FreezerState(enum.Enum):
    """State of a cgroup's freezer."""

    THAWED = "thawed"
    FREEZING = "freezing"
    FROZEN = "frozen"
    GONE = "gone"
    """The cgroup was removed."""


class Freezer:
    """Freezer of one cgroup."""

    def __init__(self, directory: Path, version: int) -> None:
        """`directory`: of the cgroup. `version`: of its hierarchy, 1 or 2."""
        self.directory = directory
        self._version = version
        self._file = directory / ("freezer.state" if version == 1 else "cgroup.freeze")

    def state(self) -> FreezerState:
        """Read the freezer's state. It is also FROZEN if a cgroup above it is frozen."""
        try:
            if self._version == 1:
                return FreezerState(self._file.read_text().strip().lower())
            events = (self.directory / "cgroup.events").read_text()
            if "frozen 1" in events:
                return FreezerState.FROZEN
            return FreezerState.FREEZING if self._file.read_text().strip() == "1" else FreezerState.THAWED
        except OSError as error:
            if _is_gone(error):
                return FreezerState.GONE
            raise _translated(error, self._file) from error

    async def freeze(self, clock: Clock, seconds: float = FREEZE_SECONDS) -> None:
        """Freeze all processes, and wait until they are frozen; succeeds if they are already.

        Raises Conflict if they are not frozen after `seconds`, with the threads that are the cause, or if they are thawed
        meanwhile, and NotFound if the cgroup is gone. After an error or a cancellation the processes run again.
        """
        try:
            self._write(frozen=True)
            await self._wait(clock, seconds, FreezerState.FROZEN, self._freeze_again)
        except _NotReached:
            before = set(self._threads_in_d())
            self._undo()
            await clock.sleep(_SETTLE_SECONDS)
            # Frozen threads are shown in state D, too; a thread that is the cause stays in it.
            cause = _named([thread for thread in self._threads_in_d() if thread in before])
            raise Conflict(f"not frozen after {seconds:g} s, runs again: {cause}") from None
        except BaseException:
            self._undo()
            raise

    async def thaw(self, clock: Clock, seconds: float = THAW_SECONDS) -> None:
        """Let all processes continue; succeeds if they are not frozen.

        Raises Conflict if they are still frozen after `seconds`, because a cgroup above is frozen, and NotFound if the
        cgroup is gone.
        """
        self._write(frozen=False)
        try:
            await self._wait(clock, seconds, FreezerState.THAWED)
        except _NotReached:
            above = self.directory.parent
            raise Conflict(
                f"still frozen: a cgroup above it is frozen, {above} or one above that; thaw it"
            ) from None

    async def _wait(
        self,
        clock: Clock,
        seconds: float,
        wanted: FreezerState,
        again: Callable[[int], None] | None = None,
    ) -> None:
        """Look until the state is `wanted`. `again`: called after each other state, with the number of looks."""
        deadline, pause, looks = clock.monotonic() + seconds, _FIRST_LOOK_SECONDS, 0
        while (state := self.state()) is not wanted:
            if state is FreezerState.GONE:
                raise NotFound(f"cgroup {self.directory} is gone")
            if state is FreezerState.THAWED:  # not by `_freeze_again`, which is one step
                raise Conflict(
                    f"cgroup {self.directory} was thawed by another call or program while it froze"
                )
            if clock.monotonic() >= deadline:
                raise _NotReached
            looks += 1
            if again is not None:
                again(looks)
            await clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS)

    def _freeze_again(self, looks: int) -> None:
        """Repeat the request on cgroup v1, after every few looks with a short thaw before it.

        Linux does not freeze a v1 cgroup reliably while its processes start others: it can stay FREEZING forever,
        with no thread in state D (seen on 6.18). runc repeats the request for the same reason.
        """
        if self._version == 1:
            if looks % _LOOKS_BEFORE_THAW == 0:
                self._write(frozen=False)
            self._write(frozen=True)

    def _write(self, *, frozen: bool) -> None:
        words = ("THAWED", "FROZEN") if self._version == 1 else ("0", "1")
        try:
            # O_CREAT is left out: in a directory that is not a cgroup, a file would be made.
            with os.fdopen(os.open(self._file, os.O_WRONLY), "w") as file:
                file.write(words[frozen])
        except OSError as error:
            if self.directory.is_dir() and isinstance(error, FileNotFoundError):
                needs = (
                    "; it needs Linux 5.2" if self._version == 2 else "; this is not a cgroup of a freezer"
                )
                raise Unsupported(f"{self._file} does not exist{needs}") from error
            if _is_gone(error):
                raise NotFound(f"cgroup {self.directory} is gone") from error
            raise _translated(error, self._file) from error

    def _undo(self) -> None:
        try:
            self._write(frozen=False)
        except (NotFound, Unsupported):
            pass  # the container has ended, or was never frozen

    def _threads_in_d(self) -> Iterator[str]:
        list_name = "tasks" if self._version == 1 else "cgroup.threads"
        for directory, _, _ in os.walk(self.directory):
            try:
                numbers = Path(directory, list_name).read_text().split()
            except OSError:
                continue  # removed meanwhile
            for number in numbers:
                stat = read_stat(number)
                if stat is not None and stat.state == "D":
                    yield f"{number} ({stat.name})"


def _named(threads: list[str]) -> str:
    """Describe threads in state D, such as ``thread 123 (cat) is in uninterruptible sleep (state D)``."""
    if not threads:
        return "no thread is in uninterruptible sleep; the machine may be busy"
    more = f" and {len(threads) - _NAMED_THREADS} more" if len(threads) > _NAMED_THREADS else ""
    words = ("thread", "is") if len(threads) == 1 else ("threads", "are")
    return f"{words[0]} {', '.join(threads[:_NAMED_THREADS])}{more} {words[1]} in uninterruptible sleep (state D)"


class _NotReached(Exception):
    """The cgroup has not reached the state at the deadline."""


def _is_gone(error: OSError) -> bool:
    return error.errno in (errno.ENOENT, errno.ESRCH, errno.ENODEV)


def _translated(error: OSError, file: Path) -> KubeletxError:
    if isinstance(error, PermissionError):
        return PermissionDenied(f"cannot access {file}: {error.strerror}; the agent must be root")
    return Internal(f"cannot access {file}: {error.strerror}")
