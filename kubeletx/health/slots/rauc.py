"""Slots of RAUC, through its command: two slots with a boot name; in the order of their names they are IMGA and IMGB.

RAUC knows which slot runs, which is booted next ("primary") and which is good; it does not know which image has proved
itself. A record beside it holds that: a word of `SlotState` for each slot.

    active       it has been committed
    updating     it is primary, good, and does not run: ``rauc install`` or ``rauc status mark-active`` has done that
    inprogress   it runs or has run without a commit
    unused       anything else

RAUC's loaders try an image several times. Therefore the other, active slot becomes primary as soon as a new image is seen
to run: from then on each boot falls back. A commit makes the new slot good and primary, and marks the old one bad.
Loaders also count the boots of a committed image: it is marked good again once in each boot.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeletx.api.errors import KubeletxError
from kubeletx.linux.boot import boot_id
from kubeletx.linux.files import read_regular, replace_file
from kubeletx.linux.programs import run_blocking, tool_environment

from ..model import Slot, SlotState, SlotTable
from .slots import LABELS, Abilities, Slots, SlotsError

PROGRAM_SECONDS: Final = 30.0
_RECORD_BYTES: Final = 65536
_ACTIVE, _UPDATING, _INPROGRESS, _UNUSED = (
    SlotState.ACTIVE,
    SlotState.UPDATING,
    SlotState.INPROGRESS,
    SlotState.UNUSED,
)


class RaucRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Stored state. `words`: by label. `boot`, `activation`: boot that saw the slot become updating, and RAUC's mark of it."""

    words: dict[str, SlotState]
    boot: str = ""
    activation: str = ""


class _Bundle(msgspec.Struct, frozen=True):
    version: str | None = None


class _Activated(msgspec.Struct, frozen=True):
    timestamp: str = ""
    count: int = 0


class _Details(msgspec.Struct, frozen=True):
    bundle: _Bundle = _Bundle()
    activated: _Activated | None = None


class _RaucSlot(msgspec.Struct, frozen=True, kw_only=True):
    device: str = ""
    state: str = ""
    bootname: str | None = None
    boot_status: str | None = None
    slot_status: _Details = _Details()

    @property
    def is_good(self) -> bool:
        return self.boot_status == "good"

    @property
    def activation(self) -> str:
        activated = self.slot_status.activated
        return f"{activated.timestamp} {activated.count}" if activated else ""


class _RaucStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Output of ``rauc status``. `slots`: objects with one name each."""

    boot_primary: str | None = None
    slots: list[dict[str, _RaucSlot]] = []


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Report of RAUC by label. `names`: of RAUC's slots. `primary`: label, or empty."""

    names: dict[str, str]
    slots: dict[str, _RaucSlot]
    booted: str
    primary: str

    @property
    def other(self) -> str:
        return next(label for label in LABELS if label != self.booted)


class RaucSlots(Slots):
    """Slots that the program `rauc` reports. The record is on a disk that both images share."""

    abilities = Abilities(
        counts_tries=True,
        proof="RAUC 1.8 with a custom boot backend; a script stands for the boot loader",
        limits=(
            "until the guardian's first tick the loader's own number of attempts counts, by default 3; a custom boot backend has to count by itself",
            "rauc-mark-good.service must be masked: it gives a new image more tries",
            "an image that failed is seen to be installed again only with data-directory or statusfile in RAUC's system.conf",
        ),
        read_every=6,
    )
    record = Path("kubeletx-health/rauc")

    def __init__(self, record: Path, boot: str = "") -> None:
        """`boot`: identity of this boot; empty: the kernel's."""
        self._path, self._boot = record, boot
        self._is_marked = False

    def _read(self) -> SlotTable:
        facts = self._facts()
        before = self._read_record()
        if before is None:
            before = RaucRecord(words={facts.booted: _ACTIVE, facts.other: _UNUSED})
        boot = self._boot or boot_id()
        if not facts.primary and before.words[facts.other] is _UPDATING and before.boot == boot:
            raise SlotsError("rauc does not say which slot boots next; its log names the error: rauc status")
        record = settle(before, facts, boot)
        if record != before or not self._path.exists():
            self._write_record(record)
        booted, other = record.words[facts.booted], record.words[facts.other]
        if booted is _INPROGRESS and other is _ACTIVE:
            if facts.slots[facts.other].is_good and facts.primary != facts.other:
                self._mark("active", facts.names[facts.other])
        elif booted is _ACTIVE and not self._is_marked:
            self._mark("good", facts.names[facts.booted])
            self._is_marked = True
        first, second = (self._slot(label, record, facts) for label in LABELS)
        return SlotTable((first, second), facts.booted)

    def _write(self, label: str, state: SlotState) -> None:
        facts, record = self._facts(), self._read_record()
        if record is None:
            raise SlotsError(f"{label}: its state needs a read before")
        name, slot = facts.names[label], facts.slots[label]
        if state is not _UNUSED:
            if not slot.is_good:
                self._mark("good", name)
            if facts.primary != label or record.words[label] is _INPROGRESS:
                self._mark("active", name)
            # The next read finds that a new image is primary.
            word = _ACTIVE if state is _ACTIVE else _UNUSED
        else:
            other = next(one for one in LABELS if one != label)
            if facts.primary == label and facts.slots[other].is_good:
                self._mark("active", facts.names[other])
            if slot.is_good:
                self._mark("bad", name)
            word = _UNUSED
        if state is not _UPDATING or record.words[label] is not _UPDATING:
            self._write_record(replace(record, words={**record.words, label: word}))

    def _facts(self) -> _Facts:
        output = self._run("status", "--detailed", "--output-format=json")
        try:
            status = msgspec.json.decode(output, type=_RaucStatus)
        except msgspec.MsgspecError as error:
            raise SlotsError(f"rauc status printed something else than expected: {error}") from error
        found = {name: slot for group in status.slots for name, slot in group.items() if slot.bootname}
        if len(found) != len(LABELS):
            raise SlotsError(
                f"rauc reports {len(found)} slots with a bootname ({', '.join(sorted(found)) or 'none'}); "
                "give two slots one in RAUC's system.conf"
            )
        names = dict(zip(LABELS, sorted(found), strict=True))
        booted = [label for label, name in names.items() if found[name].state == "booted"]
        if len(booted) != 1:
            raise SlotsError(
                "rauc does not know which slot runs; does the kernel's command line have rauc.slot=?"
            )
        primary = next((label for label, name in names.items() if name == status.boot_primary), "")
        slots = {label: found[name] for label, name in names.items()}
        return _Facts(names=names, slots=slots, booted=booted[0], primary=primary)

    def _mark(self, word: str, name: str) -> None:
        self._run("status", f"mark-{word}", name)

    def _run(self, *arguments: str) -> bytes:
        try:
            result = run_blocking(
                ("rauc", *arguments),
                seconds=PROGRAM_SECONDS,
                environment={**os.environ, **tool_environment()},
                name=f"rauc {arguments[0]}",
            )
        except FileNotFoundError as error:
            raise SlotsError("the program rauc is missing; install RAUC") from error
        except (OSError, KubeletxError) as error:
            raise SlotsError(f"rauc {' '.join(arguments)}: {error}") from error
        if result.exit_code:
            # Lines of GLib's log have a process ID and the time: the error would be a new one each time.
            lines = [line for line in result.stderr.split(b"\n") if not line.startswith(b"(rauc:")]
            problem = replace(result, stderr=b"\n".join(lines)).problem(" ".join(arguments))
            raise SlotsError(f"{problem}; is RAUC's service running, and what does its log say?")
        return result.stdout

    def _slot(self, label: str, record: RaucRecord, facts: _Facts) -> Slot:
        slot = facts.slots[label]
        return Slot(label, record.words[label], slot.slot_status.bundle.version or "", slot.device)

    def _read_record(self) -> RaucRecord | None:
        try:
            record = msgspec.json.decode(read_regular(self._path, _RECORD_BYTES), type=RaucRecord)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise SlotsError(
                f"{self._path}: cannot be read: {error}; without this file the running image counts as committed"
            ) from error
        if set(record.words) != set(LABELS):
            raise SlotsError(
                f"{self._path}: has no words for IMGA and IMGB; remove it, and the running image counts as committed"
            )
        return record

    def _write_record(self, record: RaucRecord) -> None:
        replace_file(self._path, msgspec.json.encode(record))


def settle(record: RaucRecord, facts: _Facts, boot: str) -> RaucRecord:
    """Return what the record says after RAUC's report."""
    booted, other = record.words[facts.booted], record.words[facts.other]
    slot = facts.slots[facts.other]
    if booted is not _ACTIVE:
        booted = _INPROGRESS
    if other is not _ACTIVE:
        is_chosen = booted is _ACTIVE and facts.primary == facts.other and slot.is_good
        if is_chosen and (other is _UNUSED or slot.activation != record.activation):
            other = _UPDATING
            record = replace(record, boot=boot, activation=slot.activation)
        elif other is _UPDATING and not (is_chosen and record.boot == boot):
            # The loader has tried it, or does not take it: another reboot would not help.
            other = _INPROGRESS
    return replace(record, words={facts.booted: booted, facts.other: other})
