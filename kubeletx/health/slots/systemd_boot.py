"""Slots of systemd-boot: one entry a slot, whose file name has its state. Source: systemd, AUTOMATIC_BOOT_ASSESSMENT.

ESP/loader/entries/kubeletx-GENERATION-LABEL[+LEFT[-DONE]].conf

    kubeletx-3-imga.conf        active: no counter
    kubeletx-4-imgb+1.conf      updating: one try is left
    kubeletx-4-imgb+0-1.conf    inprogress: so the loader renames it before it boots it
    kubeletx-4-imgb+0.conf      unused

The loader takes the highest generation of the entries that have no counter or a try left. Therefore an image that is to
be tried gets the next generation, and a commit takes the counter away, as ``systemd-bless-boot good`` does. Two active
images, after a commit that was cut in half, are no tie: the newer one boots. The line ``version`` of an entry is the
version of its image.

A change writes a whole entry with the new name, and then removes the old one. A rename would not do: on FAT, Linux writes
the new name first and the place and size of its content later, so a power cut leaves an empty file. The loader and
`read` ignore an entry that does not name a kernel.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from kubeletx.linux.files import read_regular, remove_file, sync_directory

from ..model import Slot, SlotState, SlotTable
from .slots import LABELS, Abilities, Slots, SlotsError, write_through

EFI_VARIABLES: Final = Path("/sys/firmware/efi/efivars")
_VENDOR: Final = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
PLACES: Final = (Path("/efi"), Path("/boot"), Path("/boot/efi"))
_ENTRIES: Final = "loader/entries"
_NAME: Final = re.compile(
    r"kubeletx-(?P<generation>\d{1,9})-(?P<label>img[ab])(?:\+(?P<left>\d{1,3})(?:-(?P<done>\d{1,3}))?)?\.conf"
)
_COUNTERS: Final = {SlotState.ACTIVE: "", SlotState.UPDATING: "+1", SlotState.UNUSED: "+0"}
_RIGHTS: Final = (SlotState.UNUSED, SlotState.INPROGRESS, SlotState.UPDATING, SlotState.ACTIVE)
_ENTRY_BYTES: Final = 65536


class _Entry(NamedTuple):
    """Name of an entry's file."""

    name: str
    label: str
    generation: int
    state: SlotState


class SystemdBootSlots(Slots):
    """Slots on an EFI system partition. `esp`: where it is mounted; None: at the first of `PLACES` that has entries.

    `efi_variables`: the directory of efivarfs; a variable names the running entry.
    """

    abilities = Abilities(
        counts_tries=True,
        proof="an emulated machine boots with it",
        limits=(
            "entries of type 1 only (loader/entries); unified kernel images are not",
            "systemd-bless-boot.service must be masked: it commits the image without a test",
        ),
    )

    def __init__(self, esp: Path | None = None, efi_variables: Path = EFI_VARIABLES) -> None:
        self._given, self._variables = esp, efi_variables

    @property
    def _esp(self) -> Path:
        # It may be mounted after the start of the guardian.
        return self._given or next((place for place in PLACES if (place / _ENTRIES).is_dir()), PLACES[0])

    @property
    def _directory(self) -> Path:
        return self._esp / _ENTRIES

    def _read(self) -> SlotTable:
        entries = self._entries()
        first, second = (self._slot(label, entries) for label in LABELS)
        return SlotTable((first, second), self._current_label())

    def _write(self, label: str, state: SlotState) -> None:
        entries = self._entries()
        own = [entry for entry in entries if entry.label == label]
        if not own:
            raise SlotsError(
                f"{label}: {self._directory} has no entry such as kubeletx-1-{label.lower()}+0.conf; write one"
            )
        entry, highest = own[0], max(other.generation for other in entries)
        generation = entry.generation
        if state is SlotState.UPDATING:
            self._check_order()
            is_first = all(e.label == label or e.generation < generation for e in entries)
            if entry.state is not state or not is_first:
                generation = highest + 1
        name = f"kubeletx-{generation}-{label.lower()}{_COUNTERS[state]}.conf"
        if entry.state is state and generation == entry.generation:
            name = entry.name  # another program may write the counter differently
        if name != entry.name:
            data = read_regular(self._directory / entry.name, _ENTRY_BYTES)
            write_through(self._directory / name, data, os.O_CREAT | os.O_TRUNC)
            sync_directory(self._directory)
        for other in own:
            if other.name != name:
                remove_file(self._directory / other.name)

    def _entries(self) -> list[_Entry]:
        """Return the entries of both slots; the first one of a slot counts.

        A power cut may leave a second one of a slot. The later one counts; of one generation, the one with fewer rights.
        """
        found = []
        for name in os.listdir(self._directory):
            match = _NAME.fullmatch(name.lower())
            if match is None or not {"linux", "efi", "uki"} & self._lines(self._directory / name).keys():
                continue
            left, done = match["left"], int(match["done"] or 0)
            if left is None:
                state = SlotState.ACTIVE
            elif int(left):
                state = SlotState.UPDATING
            else:
                state = SlotState.INPROGRESS if done else SlotState.UNUSED
            found.append(_Entry(name, match["label"].upper(), int(match["generation"]), state))
        if not found:
            raise SlotsError(
                f"{self._directory} has no entry such as kubeletx-1-imga.conf; is the ESP mounted there? "
                "Another place: --slots systemd-boot:DIR"
            )
        return sorted(found, key=lambda entry: (-entry.generation, _RIGHTS.index(entry.state)))

    def _slot(self, label: str, entries: list[_Entry]) -> Slot:
        entry = next((entry for entry in entries if entry.label == label), None)
        if entry is None:
            return Slot(label, SlotState.UNUSED)
        path = self._directory / entry.name
        return Slot(label, entry.state, self._lines(path).get("version", ""), str(path))

    def _lines(self, path: Path) -> dict[str, str]:
        """Return the lines of an entry or of loader.conf: key and value. The last one of a key counts."""
        try:
            text = read_regular(path, _ENTRY_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return {}
        pairs = (line.split(None, 1) for line in text.split("\n") if not line.lstrip().startswith("#"))
        return {pair[0]: pair[-1].strip() for pair in pairs if pair}

    def _check_order(self) -> None:
        """Raise SlotsError if something else decides what systemd-boot takes."""
        conf = self._esp / "loader" / "loader.conf"
        if "default" in self._lines(conf):
            raise SlotsError(
                f"{conf}: a default is booted again and again, even if it fails; remove the line"
            )
        if self._variable("LoaderEntryDefault"):
            raise SlotsError(
                "EFI variable LoaderEntryDefault is set, and its entry is booted even if it fails; "
                "remove it with: bootctl set-default ''"
            )
        for name in os.listdir(self._directory):
            path, is_own = self._directory / name, _NAME.fullmatch(name.lower()) is not None
            if not name.lower().endswith(".conf"):
                continue
            if "sort-key" in self._lines(path) or (not is_own and name.lower() > "kubeletx-"):
                fix = "remove its line sort-key" if is_own else "move it away"
                raise SlotsError(f"{path}: systemd-boot may prefer it to a new image; {fix}")

    def _current_label(self) -> str:
        text = self._variable("LoaderEntrySelected")
        match = _NAME.fullmatch(text.lower())
        if match is None:
            found = f"is {text[:60]!r}" if text else "cannot be read"
            raise SlotsError(
                f"EFI variable LoaderEntrySelected {found}; boot an entry kubeletx-*.conf and mount efivarfs"
            )
        return match["label"].upper()

    def _variable(self, name: str) -> str:
        try:
            data = read_regular(self._variables / f"{name}-{_VENDOR}", _ENTRY_BYTES)
        except OSError:
            return ""
        return data[4:].decode("utf-16-le", errors="replace").rstrip("\0")  # 4 bytes of attributes come first
