"""Values that the parts of the guardian share, and the files that keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..config import HealthSettings, merge
from ..model import SlotTable
from ..operations import OperationStep
from ..state import Memory, RunState, StateFile
from ..validation import Phase, Validation


class GuardianState:
    """State of the guardian; `store` writes `run` and `memory`.

    `table`: slots as they were read last; None: they have not answered. `settings`: those in force; `own_settings`: without
    those of the controller.
    """

    def __init__(
        self,
        run: Path,
        persist: Path,
        settings: HealthSettings,
        boot: str,
        report: Callable[[str, str], object],
    ) -> None:
        """`run`, `persist`: the guardian's own directories. `settings`: of the configuration file."""

        def bad(line: str) -> None:
            report("BadState", line)

        self._memory_file = StateFile(persist / "memory", Memory(), bad)
        self._run_file = StateFile(run / "state", RunState(), bad, survives_power_loss=False)
        self.memory = self._memory_file.read()
        self.run = self._run_file.read()
        if self.run.boot != boot:
            validation = Validation(commit=self.memory.commit)
            self.run = RunState(boot=boot, validation=validation, ignored=self.memory.commands)
        self._report, self._base = report, settings
        self.table: SlotTable | None = None
        self.settings = self.own_settings = settings
        self.controller_items: Mapping[str, Any] = {}
        self.apply_settings({})

    def update_run(self, **changes: Any) -> None:
        self.run = replace(self.run, **changes)

    def update_memory(self, **changes: Any) -> None:
        self.memory = replace(self.memory, **changes)

    def store(self) -> None:
        self._memory_file.write(self.memory)
        self._run_file.write(self.run)

    def apply_settings(self, controller_items: Mapping[str, Any]) -> None:
        """Merge the settings: of the file, then of ``kubeletx health config``, then of the controller."""

        def bad(line: str) -> None:
            self._report("BadSetting", line)

        self.controller_items = controller_items
        self.own_settings = merge(self._base, self.memory.items, bad)
        self.settings = merge(self.own_settings, controller_items, bad)

    @property
    def is_testing(self) -> bool:
        return self.run.validation.phase is Phase.TESTING

    @property
    def is_busy(self) -> bool:
        """An operation is under way."""
        operation = self.run.operation
        return operation is not None and operation.step not in {OperationStep.WAITING, OperationStep.HALTED}
