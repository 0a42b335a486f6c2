"""Effects on the machine. The default only logs them; a real backend has to be named in the configuration."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Final, Protocol

from .model import BootReason, OperationKind
from .slots import Slots
from .slots.file import FileSlots

SYNC_SECONDS: Final = 20.0
"""Time that file systems get to write their buffers before the kernel is asked to reboot."""


def sync_within(seconds: float) -> bool:
    """Write the buffers of all file systems, in a thread: a disk that hangs does not hold up the reboot.

    Returns False if it is not done in time; it goes on then.
    """
    thread = threading.Thread(target=os.sync, name="sync", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


class Rebooted(Exception):
    """The simulated machine has rebooted: the process ends with exit code 75."""


class MachineEffects(Protocol):
    """Effects on the machine. Methods may block for 30 s and raise OSError."""

    name: str

    def act(self, kind: OperationKind, boot_reason: BootReason, reason: str) -> None:
        """Reboot or switch off. Returning does not mean that it happens."""
        ...

    def restart_unit(self, unit: str) -> None:
        """Restart a service of the service manager."""
        ...


class DryRunMachine:
    """Logs what would be done, and does nothing."""

    name = "dry-run"

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report

    def act(self, kind: OperationKind, boot_reason: BootReason, reason: str) -> None:
        self._report(f"would {kind} now ({boot_reason.text}): {reason}; the configuration names no backend")

    def restart_unit(self, unit: str) -> None:
        self._report(f"would restart {unit}; the configuration names no backend")


class TopicMachine(DryRunMachine):
    """Leaves the reboot to the agent that reads NodeAgentStatus: DeviceReboot or DevicePoweroff with AllDomainsHalted."""

    name = "topic"

    def act(self, kind: OperationKind, boot_reason: BootReason, reason: str) -> None:
        self._report(f"the agent that reads NodeAgentStatus has to {kind} now ({boot_reason.text}): {reason}")


class SimulatedMachine(DryRunMachine):
    """Effects of simulated slots: a reboot is a line in a file and the end of the process."""

    name = "simulated"

    def __init__(self, report: Callable[[str], object], slots: FileSlots) -> None:
        super().__init__(report)
        self._slots = slots

    def act(self, kind: OperationKind, boot_reason: BootReason, reason: str) -> None:
        """Raises Rebooted, after a simulated poweroff as well: the machine is switched on again."""
        self._slots.reboot(reason, boot_reason)
        raise Rebooted


class SystemdMachine:
    """Asks systemd."""

    name = "systemd"
    _VERBS: Final = {OperationKind.REBOOT: "reboot", OperationKind.POWEROFF: "poweroff"}

    def __init__(self, seconds: float = 30) -> None:
        """`seconds`: deadline of systemctl."""
        self._seconds = seconds

    def act(self, kind: OperationKind, boot_reason: BootReason, reason: str) -> None:
        self._run("systemctl", "--no-block", self._VERBS[kind])

    def restart_unit(self, unit: str) -> None:
        self._run("systemctl", "--no-block", "restart", unit)

    def _run(self, *argv: str) -> None:
        from kubeletx.api.errors import TimedOut
        from kubeletx.linux.programs import run_blocking

        try:
            result = run_blocking(argv, seconds=self._seconds)
        except TimedOut as error:
            raise OSError(str(error)) from error
        if result.exit_code:
            raise OSError(str(result.problem(" ".join(argv))))


class KernelMachine(SystemdMachine):
    """Asks the kernel, without any service manager. Source: reboot(2)."""

    name = "kernel"
    _COMMANDS: Final = {OperationKind.REBOOT: 0x01234567, OperationKind.POWEROFF: 0x4321FEDC}

    def act(self, kind: OperationKind, boot_reason: BootReason, reason: str) -> None:
        from kubeletx.linux.libc import call

        sync_within(SYNC_SECONDS)
        call("reboot", self._COMMANDS[kind])


def open_machine(
    backend: object, slots: Slots | None, report: Callable[[str, str], object]
) -> MachineEffects:
    """Return the backend of this name. Simulated slots have their own backend. A wrong name gives the backend that only logs."""
    if isinstance(slots, FileSlots):
        return SimulatedMachine(lambda line: report("WouldAct", line), slots)
    match backend:
        case SystemdMachine.name:
            return SystemdMachine()
        case KernelMachine.name:
            return KernelMachine()
        case TopicMachine.name:
            return TopicMachine(lambda line: report("WaitsForAgent", line))
        case DryRunMachine.name:
            pass
        case _:
            names = "dry-run, systemd, kernel or topic"
            report("BadConfiguration", f"backend: {backend!r} is not {names}; nothing is rebooted")
    return DryRunMachine(lambda line: report("WouldAct", line))


class UnitRestarts:
    """Restarts that this process has begun, each in a thread, since a restart runs a program.

    `report`: gets a CamelCase reason and a line.
    """

    def __init__(self, machine: MachineEffects, report: Callable[[str, str], object]) -> None:
        self._machine, self._report = machine, report
        self._threads: dict[str, Thread] = {}
        self._failed: set[str] = set()
        """Units whose restart has failed once: it is tried a second time."""

    def unfinished(self, units: Iterable[str]) -> tuple[str, ...]:
        """Return the units whose restart has not ended, has failed once, or was not begun by this process."""
        ended = [unit for unit, thread in self._threads.items() if not thread.is_alive()]
        for unit in ended:
            del self._threads[unit]
        return tuple(unit for unit in units if unit not in ended or unit in self._failed)

    def begin(self, units: Iterable[str]) -> None:
        """Restart the units, unless their restart is under way."""
        for unit in set(units) - self._threads.keys():
            thread = Thread(target=self._restart, args=(unit,), name=f"restart {unit}", daemon=True)
            self._threads[unit] = thread
            thread.start()

    def _restart(self, unit: str) -> None:
        try:
            self._machine.restart_unit(unit)
            self._failed.discard(unit)
        except OSError as error:
            self._failed ^= {unit}
            self._report("CannotRestart", f"{unit}: {error}")
