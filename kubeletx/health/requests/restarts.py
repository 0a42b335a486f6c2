"""Restarts of units, each in a thread, since a restart runs a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Thread

from ..machine import MachineEffects


class UnitRestarts:
    """Restarts that this process has begun. `report`: gets a CamelCase reason and a line."""

    def __init__(self, machine: MachineEffects, report: Callable[[str, str], object]) -> None:
        self._machine, self._report = machine, report
        self._threads: dict[str, Thread] = {}

    def unfinished(self, units: Iterable[str]) -> tuple[str, ...]:
        """Return the units whose restart has not ended, or was not begun by this process."""
        ended = [unit for unit, thread in self._threads.items() if not thread.is_alive()]
        for unit in ended:
            del self._threads[unit]
        return tuple(unit for unit in units if unit not in ended)

    def begin(self, units: Iterable[str]) -> None:
        """Restart the units, unless their restart is under way."""
        for unit in set(units) - self._threads.keys():
            thread = Thread(target=self._restart, args=(unit,), name=f"restart {unit}", daemon=True)
            self._threads[unit] = thread
            thread.start()

    def _restart(self, unit: str) -> None:
        try:
            self._machine.restart_unit(unit)
        except OSError as error:
            self._report("CannotRestart", f"{unit}: {error}")
