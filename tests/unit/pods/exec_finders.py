"""An `ExecFinder` under the control of the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeletx.api import ExecResult, KubeletxError, UnitId
from kubeletx.pods.probes.exec import ExecSync


class FakeExecFinder:
    """An `ExecFinder`: `does` answers commands, or is raised; `is_up` is what `answers` says."""

    def __init__(
        self,
        does: Callable[[Sequence[str]], ExecResult] | ExecResult | KubeletxError | None = None,
        *,
        is_up: bool = True,
        has_exec: bool = True,
    ) -> None:
        self.does, self.is_up, self.has_exec = does, is_up, has_exec
        self.commands: list[tuple[UnitId, tuple[str, ...], float]] = []

    def find(self) -> ExecSync | None:
        return self.exec_sync if self.has_exec else None

    async def answers(self) -> bool:
        return self.is_up

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        self.commands.append((unit_id, tuple(command), timeout_seconds))
        if isinstance(self.does, KubeletxError):
            raise self.does
        if callable(self.does):
            return self.does(command)
        return self.does or ExecResult(stdout=b"", stderr=b"", exit_code=0)


def result(code: int, output: bytes = b"") -> ExecResult:
    """What a command gave."""
    return ExecResult(stdout=output, stderr=b"", exit_code=code)
