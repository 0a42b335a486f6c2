"""GPT slots on real loop devices, with tables that sfdisk writes and reads, and a double of EVE's loader."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.health.model import SlotState
from kubeletx.health.slots import SlotsError, open_slots
from kubeletx.health.slots.gpt import GptSlots
from kubeletx_testing.waiting import block_until
from tests.integration.support.guardian import SlotsGuardian

A, B = "IMGA", "IMGB"
ACTIVE, UPDATING, INPROGRESS, UNUSED = (
    SlotState.ACTIVE,
    SlotState.UPDATING,
    SlotState.INPROGRESS,
    SlotState.UNUSED,
)
IDENTITIES = {A: "0FC63DAF-8483-4772-8E79-3D69D8477DE1", B: "0FC63DAF-8483-4772-8E79-3D69D8477DE2"}
TABLE = f"""label: gpt
size=1MiB, name=EFI
size=1MiB, name={A}, uuid={IDENTITIES[A]}, attrs="GUID:49,56"
size=1MiB, name={B}, uuid={IDENTITIES[B]}, attrs="RequiredPartition"
"""
SECTOR = 512


def run(*argv: str, stdin: str = "") -> str:
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=True).stdout


class Disk:
    """A disk whose table sfdisk has made, and the command line of the kernel that runs from it."""

    def __init__(self, base: Path, device: Path) -> None:
        self.device, self.command_line = device, base / "cmdline"
        run("sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", str(device), stdin=TABLE)
        self.run_from(f"root=PARTLABEL={A}")

    def run_from(self, words: str) -> None:
        self.command_line.write_text(f"ro {words} quiet\n")

    @property
    def slots(self) -> GptSlots:
        return GptSlots(self.device, self.command_line)

    @property
    def states(self) -> tuple[SlotState, ...]:
        return tuple(slot.state for slot in self.slots.read().slots)

    def bits(self, number: int) -> set[str]:
        """Attributes of a partition, as sfdisk prints them."""
        text = run("sfdisk", "--part-attrs", str(self.device), str(number)).strip()
        return {bit for word in text.split() for bit in word.removeprefix("GUID:").split(",")}

    def use_up_the_try(self, number: int) -> None:
        left = self.bits(number) - {"52"}
        numbers = ",".join(sorted(bit for bit in left if bit.isdigit()))
        words = [f"GUID:{numbers}", *(bit for bit in left if not bit.isdigit())]
        argv = ["sfdisk", "--no-reread", "--no-tell-kernel", "--part-attrs", str(self.device), str(number)]
        run(*argv, " ".join(words))

    def read_at(self, sector: int, count: int = 1) -> bytes:
        with self.device.open("rb") as file:
            file.seek(sector * SECTOR)
            return file.read(count * SECTOR)

    def write_at(self, sector: int, data: bytes) -> None:
        with self.device.open("r+b") as file:
            file.seek(sector * SECTOR)
            file.write(data)


@pytest.fixture(params=[512, 4096])
def loop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A loop device with sectors of this size."""
    image = tmp_path / "disk.img"
    image.write_bytes(b"")
    with image.open("r+b") as file:
        file.truncate(8 << 20)
    device = run("losetup", "--find", "--show", "--sector-size", str(request.param), str(image)).strip()
    try:
        yield Disk(tmp_path, Path(device))
    finally:
        run("losetup", "--detach", device)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """An image file: partition tables need no device."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    return Disk(tmp_path, image)


def test_states_are_the_bits_of_the_reference_on_a_device(loop: Disk) -> None:
    assert loop.states == (ACTIVE, UNUSED)
    loop.slots.set_state(B, UPDATING)
    assert loop.bits(3) == {"RequiredPartition", "48", "49", "52"}
    assert loop.states == (ACTIVE, UPDATING)
    loop.use_up_the_try(3)
    loop.run_from(f"root=PARTUUID={IDENTITIES[B].lower()}")
    assert (loop.states, loop.slots.read().current_label) == ((ACTIVE, INPROGRESS), B)
    loop.slots.set_state(B, ACTIVE)
    loop.slots.set_state(A, UNUSED)
    assert (loop.bits(2), loop.bits(3)) == (set(), {"RequiredPartition", "49", "56"})
    assert loop.states == (UNUSED, ACTIVE)
    # sfdisk warns if the two copies differ or a checksum is wrong.
    verified = subprocess.run(
        ["sfdisk", "--verify", str(loop.device)], capture_output=True, text=True, check=True
    )
    assert "No errors detected" in verified.stdout
    assert verified.stderr == ""


def test_a_guardian_installs_and_commits_on_a_device(loop: Disk, tmp_path: Path) -> None:
    """Its process; the test uses up the try as the loader would."""
    guardian = SlotsGuardian(tmp_path, f"gpt:{loop.device}")
    try:
        guardian.boot(f"root=PARTLABEL={A}")
        guardian.wait("SlotsUnproven: ")
        block_until(lambda: guardian.states == ("active", "unused"))
        guardian.order("install", B)
        guardian.wait("would reboot now (Update)")
        assert loop.states == (ACTIVE, UPDATING)
        loop.use_up_the_try(3)
        guardian.boot(f"root=PARTLABEL={B}")
        guardian.wait(f"UpgradeCommitted: {B} is active")
        block_until(lambda: loop.states == (UNUSED, ACTIVE))
        assert "Booted: Update" in guardian.log.read_text()
    finally:
        guardian.end()


def regions(disk: Disk) -> list[tuple[int, bytes]]:
    """What a change of state writes, in its order: entries and header of the second copy, then of the first."""
    last = disk.device.stat().st_size // SECTOR - 1
    return [(at, disk.read_at(at, n)) for at, n in ((last - 32, 32), (last, 1), (2, 32), (1, 1))]


def test_a_power_cut_in_a_change_leaves_the_old_or_the_new_state(disk: Disk) -> None:
    old = regions(disk)
    disk.slots.set_state(B, UPDATING)
    new = regions(disk)
    for done in range(len(new) + 1):
        for at, data in [*new[:done], *old[done:]]:
            disk.write_at(at, data)
        assert disk.states in {(ACTIVE, UNUSED), (ACTIVE, UPDATING)}
        disk.slots.set_state(B, UPDATING)
        assert regions(disk) == new


@pytest.mark.parametrize("sector", [1, 2, -1, -33])
def test_one_broken_copy_is_repaired_by_the_next_change(disk: Disk, sector: int) -> None:
    before = regions(disk)
    at = sector if sector > 0 else disk.device.stat().st_size // SECTOR + sector
    disk.write_at(at, b"\xff" * SECTOR)
    assert disk.states == (ACTIVE, UNUSED)
    disk.slots.set_state(A, ACTIVE)
    assert regions(disk) == before


def test_the_same_state_again_writes_nothing(disk: Disk) -> None:
    disk.slots.set_state(B, UPDATING)
    before = disk.device.read_bytes()
    disk.slots.set_state(B, UPDATING)
    assert disk.device.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "label"),
    [
        ("root=PARTLABEL=IMGB", B),
        (f"root=PARTUUID={IDENTITIES[B]}", B),
        ("root=/dev/sda3 kubeletx.slot=IMGB", B),
        ("root=PARTLABEL=IMGA kubeletx.slot=IMGB", B),
    ],
)
def test_the_command_line_names_the_running_slot(disk: Disk, words: str, label: str) -> None:
    disk.run_from(words)
    assert disk.slots.read().current_label == label


def test_a_disk_without_slots_is_named(disk: Disk, tmp_path: Path) -> None:
    def refusal(path: Path = disk.device) -> str:
        with pytest.raises(SlotsError) as error:
            GptSlots(path, disk.command_line).read()
        return str(error.value)

    disk.run_from("root=/dev/sda3")
    assert "names no slot; boot with one of kubeletx.slot=imga" in refusal()
    run("sfdisk", "--quiet", "--no-reread", "--part-label", str(disk.device), "3", A)
    assert "two partitions are named IMGA; rename one" in refusal()
    run("sfdisk", "--quiet", "--no-reread", "--part-label", str(disk.device), "3", "other")
    assert "no partition is named IMGB" in refusal()
    for at in (1, disk.device.stat().st_size // SECTOR - 1):
        disk.write_at(at, bytes(SECTOR))
    assert "neither copy of its GPT is valid" in refusal()
    disk.device.write_bytes(b"short")
    assert "neither copy of its GPT is valid" in refusal()
    assert "No such file or directory" in refusal(tmp_path / "absent")
    with pytest.raises(SlotsError, match="needs a disk"):
        open_slots("gpt", tmp_path)
    with pytest.raises(SlotsError, match="only the boot loader"):
        disk.slots.set_state(B, INPROGRESS)


def test_a_lost_copy_is_not_written_over_a_partition(disk: Disk) -> None:
    """The first header says where the second one is; a disk that was cut off has no room there."""
    with disk.device.open("r+b") as file:
        file.truncate(7 << 20)
    assert disk.states == (ACTIVE, UNUSED)
    with pytest.raises(SlotsError, match="the place of its second copy is in use; repair it with sgdisk"):
        disk.slots.set_state(B, UPDATING)
