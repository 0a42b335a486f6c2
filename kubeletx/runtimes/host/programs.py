"""Runs short programs with a deadline: CNI plugins, credential helpers and providers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping


class ProgramFailed(Exception):
    """Raised if a program's exit code is not 0. The message is the first line that the program printed, shortened.

    `output`, `errors`: its whole standard output and standard error. `exit_code`: negative signal number if a signal
    ended it.
    """

    def __init__(self, message: str, output: bytes, errors: bytes = b"", exit_code: int = 1) -> None:
        """See the class."""
        super().__init__(message)
        self.output, self.errors, self.exit_code = output, errors, exit_code


async def run_program(
    program: str,
    *args: str,
    stdin: bytes = b"",
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run the program with `stdin` as its standard input, and return its standard output.

    `environment`: None passes the agent's own. Raises ProgramFailed for an exit code other than 0, TimeoutError after
    `seconds`, OSError if the program cannot be started. After a timeout or cancellation the program and its children
    are killed.
    """
    process = await asyncio.create_subprocess_exec(
        program,
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=environment,
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate(stdin)
    except BaseException:
        # Also if the program has ended: then a child in its process group keeps the pipes open.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await process.wait()
        raise
    if process.returncode != 0:
        code = process.returncode or 0
        first = (output.strip() or errors.strip()).decode(errors="replace").partition("\n")[0]
        raise ProgramFailed(first[:200] or f"exit code {code}", output, errors, code)
    return output
