"""Slots of a real RAUC with image files, its custom boot backend, and bundles. The loader counts tries as U-Boot's script does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.health.model import SlotState
from kubeletx.health.slots import SlotsError
from kubeletx.health.slots.rauc import RaucSlots
from kubeletx_testing.waiting import block_until
from tests.integration.support.guardian import SlotsGuardian

A, B = "IMGA", "IMGB"
ACTIVE, UPDATING, INPROGRESS, UNUSED = (
    SlotState.ACTIVE,
    SlotState.UPDATING,
    SlotState.INPROGRESS,
    SlotState.UNUSED,
)
TRIES = 3
BACKEND = f"""#!/bin/sh
[ ! -e "${{0%/*}}/busy" ] || {{ echo "$1" >>"${{0%/*}}/refusals"; exit 254; }}
# The slots in order of their priority are in `order`, the tries left in NAME.left.
cd "${{0%/*}}" || exit 1
case "$1" in
get-primary)
    for name in $(cat order); do
        [ "$(cat "$name.left")" -eq 0 ] || {{ echo "$name"; exit; }}
    done
    exit 1 ;;
set-primary)
    if [ "$2" = A ]; then echo A B; else echo B A; fi >order
    echo {TRIES} >"$2.left" ;;
get-state) if [ "$(cat "$2.left")" -gt 0 ]; then echo good; else echo bad; fi ;;
set-state) if [ "$3" = good ]; then echo {TRIES}; else echo 0; fi >"$2.left" ;;
esac
"""
BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path={base}/bus</listen>
  <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
"""
SYSTEM = """[system]
compatible=test
bootloader=custom
mountprefix={base}/mounts
statusfile={base}/status
[handlers]
bootloader-custom-backend={base}/backend
[keyring]
path={base}/cert.pem
[slot.rootfs.0]
device={base}/a.img
bootname=A
[slot.rootfs.1]
device={base}/b.img
bootname=B
[slot.data.0]
device={base}/data.img
"""
MANIFEST = """[update]
compatible=test
version={version}
[bundle]
format=plain
[image.rootfs]
filename=rootfs.img
"""


def run(*argv: str | Path) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


class RaucNode:
    """A node with RAUC's service on a bus of its own. IMGA runs."""

    def __init__(self, base: Path) -> None:
        self.base, self.boots = base, 0
        for name, text in (("bus.conf", BUS), ("system.conf", SYSTEM)):
            (base / name).write_text(text.format(base=base))
        (base / "backend").write_text(BACKEND)
        (base / "backend").chmod(0o755)
        for name, text in (("order", "A B"), ("A.left", str(TRIES)), ("B.left", "0")):
            (base / name).write_text(text)
        for name in ("a.img", "b.img", "data.img"):
            (base / name).write_bytes(bytes(65536))
        (base / "cert.pem").touch()
        self.bus = subprocess.Popen(
            ["dbus-daemon", f"--config-file={base}/bus.conf", "--nofork"], stderr=subprocess.DEVNULL
        )
        self.service: subprocess.Popen[bytes] | None = None
        try:
            block_until((base / "bus").exists)
            self.boot()
        except BaseException:
            self.stop_service()
            self.bus.kill()
            self.bus.wait()
            raise

    def stop_service(self) -> None:
        if self.service is not None:
            self.service.kill()
            self.service.wait()

    def boot(self) -> str:
        """Boot as the loader does, and return the boot name of the slot; user space starts RAUC's service."""
        self.stop_service()
        name = run(self.base / "backend", "get-primary").strip()
        left = self.base / f"{name}.left"
        left.write_text(str(int(left.read_text()) - 1))
        argv = ["rauc", f"--conf={self.base}/system.conf", f"--override-boot-slot={name}", "service"]
        self.service = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answer = ["rauc", "status"]
        block_until(lambda: subprocess.run(answer, capture_output=True, check=False).returncode == 0)
        self.boots += 1
        self.restart()
        return name

    def restart(self) -> None:
        """Start the guardian again."""
        self.slots = RaucSlots(self.base / "persist" / "rauc", boot=str(self.boots))

    @property
    def states(self) -> tuple[SlotState, ...]:
        return tuple(slot.state for slot in self.slots.read().slots)

    @property
    def left(self) -> tuple[int, int]:
        """Tries that the loader has left for both slots."""
        a, b = (int((self.base / f"{name}.left").read_text()) for name in "AB")
        return a, b

    def install(self, version: str) -> None:
        """Install a bundle with RAUC."""
        key, content = self.base / "key.pem", self.base / f"content-{version}"
        if not key.exists():
            cert = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=test"]
            run("openssl", "req", *cert, "-keyout", key, "-out", self.base / "cert.pem")
        content.mkdir()
        (content / "manifest.raucm").write_text(MANIFEST.format(version=version))
        (content / "rootfs.img").write_bytes(version.encode().ljust(4096, b"\0"))
        bundle = self.base / f"{version}.raucb"
        certificates = [f"--cert={self.base}/cert.pem", f"--key={key}", f"--keyring={self.base}/cert.pem"]
        run("rauc", *certificates, "bundle", content, bundle)
        run("rauc", "install", bundle)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RaucNode]:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    node = RaucNode(tmp_path)
    try:
        yield node
    finally:
        node.stop_service()
        node.bus.kill()
        node.bus.wait()


def test_an_installed_bundle_is_tested_once_and_committed(node: RaucNode) -> None:
    assert node.states == (ACTIVE, UNUSED)
    node.install("2.0")
    table = node.slots.read()
    assert [slot.state for slot in table.slots] == [ACTIVE, UPDATING]
    assert (table.slots[1].version, table.slots[1].device) == ("2.0", f"{node.base}/b.img")
    assert (node.base / "b.img").read_bytes().startswith(b"2.0\0")
    assert node.boot() == "B"
    table = node.slots.read()
    assert ([slot.state for slot in table.slots], table.current_label) == ([ACTIVE, INPROGRESS], B)
    node.slots.set_state(B, ACTIVE)
    assert node.states == (ACTIVE, ACTIVE)
    node.slots.set_state(A, UNUSED)
    assert (node.states, node.left) == ((UNUSED, ACTIVE), (0, TRIES))
    for _ in range(TRIES + 1):
        assert node.boot() == "B"
        assert (node.states, node.left) == ((UNUSED, ACTIVE), (0, TRIES))
    node.install("3.0")
    assert node.states == (UPDATING, ACTIVE)
    assert node.boot() == "A"
    assert node.states == (INPROGRESS, ACTIVE)


def test_a_reboot_in_the_test_falls_back_and_a_retry_or_another_bundle_is_booted(node: RaucNode) -> None:
    node.slots.read()
    node.install("2.0")
    for again in ("retry", "bundle", ""):
        assert node.states == (ACTIVE, UPDATING)
        node.boot()
        assert node.states == (ACTIVE, INPROGRESS)
        assert node.boot() == "A"
        assert node.states == (ACTIVE, INPROGRESS)
        if again == "retry":
            node.slots.set_state(B, UPDATING)
        elif again == "bundle":
            node.install("2.1")
    node.slots.set_state(B, UNUSED)
    assert (node.states, node.boot()) == ((ACTIVE, UNUSED), "A")


def test_an_image_that_hangs_before_user_space_uses_up_its_tries(node: RaucNode) -> None:
    node.slots.read()
    node.slots.set_state(B, UPDATING)
    assert node.states == (ACTIVE, UPDATING)
    assert [node.boot() for _ in range(TRIES + 1)] == [*"BBB", "A"]
    assert node.states == (ACTIVE, INPROGRESS)


def test_an_image_that_the_loader_does_not_take_is_tried_once(node: RaucNode) -> None:
    node.slots.read()
    node.slots.set_state(B, UPDATING)
    assert node.states == (ACTIVE, UPDATING)
    (node.base / "order").write_text("A B")
    node.boot()
    (node.base / "order").write_text("B A")
    assert node.states == (ACTIVE, INPROGRESS)
    node.restart()
    assert node.states == (ACTIVE, INPROGRESS)


def test_a_cancelled_image_is_not_booted(node: RaucNode) -> None:
    node.slots.read()
    node.slots.set_state(B, UPDATING)
    node.slots.read()
    for _ in range(2):
        node.slots.set_state(B, UNUSED)
        assert node.states == (ACTIVE, UNUSED)
    assert node.boot() == "A"


def test_a_commit_that_is_cut_is_done_again(node: RaucNode) -> None:
    """RAUC has taken the new image, and the record does not show it."""
    node.slots.read()
    node.slots.set_state(B, UPDATING)
    node.slots.read()
    node.boot()
    node.slots.read()
    record = (node.base / "persist" / "rauc").read_bytes()
    node.slots.set_state(B, ACTIVE)
    (node.base / "persist" / "rauc").write_bytes(record)
    assert node.boot() == "B"
    assert node.states == (ACTIVE, INPROGRESS)
    node.slots.set_state(B, ACTIVE)
    node.slots.set_state(A, UNUSED)
    assert (node.states, node.boot()) == ((UNUSED, ACTIVE), "B")


@pytest.fixture
def guardian(node: RaucNode) -> Iterator[SlotsGuardian]:
    """The process, which uses RAUC's program."""
    guardian = SlotsGuardian(node.base, "rauc")
    guardian.boot()
    try:
        block_until(lambda: guardian.states == ("active", "unused"))
        yield guardian
    finally:
        guardian.end()


def test_a_guardian_installs_and_commits_a_bundle(node: RaucNode, guardian: SlotsGuardian) -> None:
    node.install("2.0")
    guardian.wait("would reboot now (Update)")
    assert node.boot() == "B"
    guardian.boot()
    guardian.wait(f"UpgradeCommitted: {B} is active")
    block_until(lambda: guardian.states == ("unused", "active"))
    assert node.left == (0, TRIES)
    assert (guardian.persist / "kubeletx-health" / "rauc").exists()


def test_a_busy_boot_backend_is_one_line_and_the_states_stay(node: RaucNode, guardian: SlotsGuardian) -> None:
    (node.base / "busy").touch()
    guardian.order("install", B)
    block_until(lambda: (node.base / "refusals").read_text().count("get-primary") > 8)
    assert guardian.states == ("active", "unused")
    lines = [line for line in guardian.log.read_text().splitlines() if "Child process exited" in line]
    assert len(lines) == 1, lines
    (node.base / "busy").unlink()
    guardian.wait("would reboot now (Update)")


def test_a_program_that_is_missing_failing_or_odd_is_named(
    node: RaucNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal() -> str:
        with pytest.raises(SlotsError) as error:
            node.slots.read()
        return str(error.value)

    with pytest.raises(SlotsError, match="only the boot loader"):
        node.slots.set_state(B, INPROGRESS)
    node.slots.read()
    record = node.base / "persist" / "rauc"
    for text in ("{", '{"words": {"IMGA": "active"}}', '{"words": {"IMGA": "perhaps"}}'):
        record.write_text(text)
        assert "the running image counts as committed" in refusal()
    node.stop_service()
    assert "is RAUC's service running" in refusal()
    fake = node.base / "bin" / "rauc"
    fake.parent.mkdir()
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    for text, words in (
        ("rubbish", "printed something else"),
        ('{"slots": [{"rootfs.0": {"bootname": "A"}}]}', "reports 1 slots with a bootname (rootfs.0)"),
        ('{"slots": [{"a": {"bootname": "A"}}, {"b": {"bootname": "B"}}]}', "does not know which slot runs"),
    ):
        fake.write_text(f"#!/bin/sh\necho '{text}'\n")
        fake.chmod(0o755)
        assert words in refusal()
