"""Reasons for boots: written before a reboot, read and discarded by the next boot, deduced if there is none.

The files have the names and the form of EVE, so that other programs of the node, such as a script that dumps a crash, can write
them, too: ``reboot-reason`` (text), ``boot-reason`` (``BootReasonFallback``), ``reboot-stack``, ``reboot-image``,
``status/restartcounter``. The first cause wins, its text as well.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.linux.files import read_regular, remove_file, replace_file

from .model import BootReason, SlotState, SlotTable

STACK_LIMIT: Final = 1700
"""Most characters of a stack that is kept as it is."""
STACK_KEPT: Final = 1600
"""Characters that are kept of a longer one: its end."""
_REASON_BYTES: Final = 16384
_STACK_BYTES: Final = 512 * 1024
_SMART_BYTES: Final = 65536
_PREFIX: Final = "BootReason"
_FILES: Final = ("reboot-reason", "boot-reason", "reboot-stack", "reboot-image")


class BootRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Reason for one boot. `image`: label of the image that ran before. `time`: of the reason, RFC 3339, empty if unknown."""

    boot_reason: BootReason = BootReason.NONE
    reason: str = ""
    stack: str = ""
    image: str = ""
    time: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Traces of how the last boot ended. Power cycles are counted by the disk (SMART); None: unknown."""

    is_first_boot: bool = False
    power_cycles: int | None = None
    power_cycles_before: int | None = None
    hardware_watchdog: bool = False


def deduce(evidence: Evidence) -> tuple[BootReason, str]:
    """Return the reason for a boot for which none was stored."""
    now, before = evidence.power_cycles, evidence.power_cycles_before
    if evidence.is_first_boot:
        return BootReason.FIRST, "NORMAL: First boot of the node"
    if now is not None and before is not None and now > before:
        return (
            BootReason.POWER_FAIL,
            f"the disk counts {now} power cycles, {before} before: the power was cut",
        )
    if evidence.hardware_watchdog:
        return BootReason.HW_WATCHDOG, "the hardware watchdog reset the node"
    if now is not None and now == before:
        return BootReason.KERNEL, "the node was reset while it had power: the kernel crashed or hung"
    return BootReason.UNKNOWN, "nothing says why the node was reset"


def trim_stack(text: str) -> str:
    """Return the end of a long stack, after a line of dots."""
    return text if len(text) <= STACK_LIMIT else "...\n" + text[-(STACK_KEPT - 4) :]


class ReasonFiles:
    """The files below PERSIST. Writing raises OSError; what cannot be read counts as absent."""

    def __init__(self, persist: Path) -> None:
        self._persist = persist

    def write(self, record: BootRecord) -> None:
        """Store the reason for the next boot, unless one is stored."""
        if (self._persist / "boot-reason").exists():
            return
        (self._persist / "reboot-image").unlink(missing_ok=True)
        replace_file(self._persist / "reboot-reason", record.reason.encode() + b"\n", 0o644)
        if record.stack:
            replace_file(self._persist / "reboot-stack", record.stack.encode(), 0o644)
        if record.image:
            replace_file(self._persist / "reboot-image", record.image.encode() + b"\n", 0o644)
        # Last: with it the record is complete.
        replace_file(self._persist / "boot-reason", f"{_PREFIX}{record.boot_reason.text}\n".encode(), 0o644)

    def read(self) -> BootRecord | None:
        """Return the stored reason; None if there is none."""
        name = self._text("boot-reason", _REASON_BYTES)
        reason = self._text("reboot-reason", _REASON_BYTES)
        if not name and not reason:
            return None
        path = self._persist / ("boot-reason" if name else "reboot-reason")
        return BootRecord(
            boot_reason=_parse(name) if name else BootReason.UNKNOWN,
            reason=reason,
            stack=trim_stack(self._text("reboot-stack", _STACK_BYTES)),
            image=self._text("reboot-image", _REASON_BYTES),
            time=datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds"),
        )

    def discard(self) -> None:
        """Remove the stored reason, after the guardian has stored it as that of this boot."""
        for name in _FILES:
            with suppress(OSError):
                remove_file(self._persist / name)
        with suppress(OSError):
            remove_file(self._persist / "first-boot")

    def evidence(self, *, is_new: bool) -> Evidence:
        """Return the traces of the last boot's end. `is_new`: the guardian has never run on this node."""
        status = self._text("hw_watchdog_bootstatus", _REASON_BYTES)
        return Evidence(
            is_first_boot=is_new or (self._persist / "first-boot").exists(),
            power_cycles=self._power_cycles("SMART_details.json"),
            power_cycles_before=self._power_cycles("SMART_details_previous.json"),
            hardware_watchdog="CARDRESET" in status.split(),
        )

    def after_failed_update(self, record: BootRecord, table: SlotTable) -> BootRecord:
        """Return the record of this boot if a new image was booted before it and ended before its guardian ran.

        The old image stored "Update", which nothing read in the new one, so it does not say how that one ended.
        Any other record is returned as it is.
        """
        is_unread = record.boot_reason is BootReason.UPDATE and record.image == table.current_label
        if not is_unread or table.other.state is not SlotState.INPROGRESS:
            return record
        boot_reason, reason = deduce(self.evidence(is_new=False))
        label = table.other.label
        return BootRecord(
            boot_reason=boot_reason, reason=f"{label} ended before it was tested: {reason}", image=label
        )

    def restarts(self) -> int:
        """Return the counter of boots; garbage counts as 0."""
        text = self._text("status/restartcounter", 64)
        return int(text) if text.isascii() and text.isdigit() else 0

    def write_restarts(self, count: int) -> None:
        """Store the counter of boots unless it has this value."""
        if self._text("status/restartcounter", 64) != str(count):
            replace_file(self._persist / "status" / "restartcounter", f"{count}\n".encode(), 0o644)

    def _power_cycles(self, name: str) -> int | None:
        with suppress(ValueError, RecursionError, AttributeError):
            count = json.loads(self._text(name, _SMART_BYTES)).get("power_cycle_count")
            if isinstance(count, int) and count >= 0:
                return count
        return None

    def _text(self, name: str, most_bytes: int) -> str:
        try:
            return read_regular(self._persist / name, most_bytes).decode(errors="replace").strip()
        except OSError:
            return ""


def _parse(text: str) -> BootReason:
    name = text.removeprefix(_PREFIX)
    return next((reason for reason in BootReason if reason.text == name), BootReason.PARSE_FAIL)
