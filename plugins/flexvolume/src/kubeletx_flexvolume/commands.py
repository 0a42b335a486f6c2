"""`Commands`: runs programs of the storage agent, such as mount and losetup, each with a deadline.

    started ─► ended                                        code, output
       └─ deadline ─► SIGINT ─ grace ─► SIGKILL ─ grace ─► it hangs in the kernel

A program inherits the open lock file of its volume. The kernel drops the lock when the last process that has the file
open has ended. So at most one program works on a volume, also if it hangs in the kernel and survives SIGKILL, and also
if the agent that started it was killed. A program runs on if the waiting task is cancelled: that happens only at the
agent's end, when half of a mkfs would be worse.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kubeletx.api import Unavailable
from kubeletx.linux.locks import LockHeld, hold_lock
from kubeletx.linux.programs import Ending, ProgramResult, run_program, shell_text, tool_environment

from .values import file_stem

GRACE_SECONDS: Final = 15.0
IDLE_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.02
_KILL_SECONDS: Final = 3.0


class Commands:
    """Runs programs for volumes. `lock_directory`: directory of the volumes' lock files."""

    def __init__(self, lock_directory: Path, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self._lock_directory = lock_directory
        self._ending = Ending(
            steps=((signal.SIGINT, grace_seconds), (signal.SIGKILL, _KILL_SECONDS)),
            leaves_daemon=True,
            survives_cancellation=True,
        )

    async def wait_idle(self, volume: str, *, seconds: float = IDLE_SECONDS) -> None:
        """Wait until no program works on the volume, such as a mount of an agent that was killed.

        Before that, a look that finds nothing does not show that nothing will be there. Raises Unavailable after `seconds`.
        """
        ends_at = time.monotonic() + seconds
        while True:
            try:
                with self._locked(volume):
                    return
            except Unavailable:
                if time.monotonic() >= ends_at:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _locked(self, volume: str) -> Iterator[int]:
        try:
            with hold_lock(self._lock_directory / f"{file_stem(volume)}.lock") as descriptor:
                yield descriptor
        except LockHeld as error:
            raise Unavailable(f"volume {volume} is locked by {error.owner}, which has not ended") from None

    async def run(
        self, command: Sequence[str], *, seconds: float, volume: str = "", secret: bytes = b""
    ) -> ProgramResult:
        """Run the command and return its result, also if its exit status is not 0.

        `volume`: volume that stays locked until the program has ended; empty: the program changes none. `secret`:
        content of the file `kubeletx.linux.programs.STDIN_FILE` of the program; secrets are never among the arguments.
        Raises Unavailable if the program is not installed or the volume is locked, and TimedOut if the program did not
        end within `seconds`.
        """
        text = shell_text(command)
        with contextlib.ExitStack() as stack:
            locks = (stack.enter_context(self._locked(volume)),) if volume else ()
            try:
                return await run_program(
                    command,
                    seconds=seconds,
                    stdin=secret,
                    environment=tool_environment(),
                    inherited=locks,
                    ending=self._ending,
                    name=text,
                )
            except FileNotFoundError as error:
                raise Unavailable(f"program {command[0]} is not on this node; install it") from error
            except OSError as error:
                raise Unavailable(f"program {command[0]} cannot be started: {error.strerror}") from error
