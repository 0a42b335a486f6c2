"""`Programs`: runs programs of the node, such as mount(8), with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from kubeletx.api import TimedOut, Unavailable
from kubeletx.api.names import Event

from .processes import Processes, ProcessResult
from .reply import quoted


class Programs(Protocol):
    """Interface for running programs of the node; implemented by `NodePrograms` and by fakes in tests."""

    async def run(self, *program: str, until: float, key: str = "") -> ProcessResult:
        """Run a program and return its result, whatever its exit code is.

        `until`: deadline, in the time of the event loop. `key`: as in `Processes.run`. Raises TimedOut at the deadline,
        and Unavailable if the program cannot be started.
        """
        ...


class NodePrograms:
    """Implements `Programs` with child processes."""

    def __init__(self, processes: Processes, environment: Mapping[str, str]) -> None:
        self._processes = processes
        self._environment = {**environment, "LC_ALL": "C"}

    async def run(self, *program: str, until: float, key: str = "") -> ProcessResult:
        try:
            async with asyncio.timeout_at(until):
                return await self._processes.run(program, key=key, environment=self._environment)
        except TimeoutError:
            raise TimedOut(
                f"{program[0]} did not end before the deadline and was killed; its device may hang",
                reason=Event.FAILED_MOUNT,
            ) from None
        except OSError as error:
            raise Unavailable(
                f"{program[0]} cannot be started: {error.strerror}; install it on the node",
                reason=Event.FAILED_MOUNT,
            ) from error


def failed(program: str, what: str, result: ProcessResult) -> Unavailable:
    """Return the error for a program that failed. `what`: what it was to do."""
    said = quoted((result.stderr + b" " + result.stdout).decode("utf-8", "replace"))
    return Unavailable(
        f"{program} could not {what}: exit code {result.exit_code}: {said}", reason=Event.FAILED_MOUNT
    )
