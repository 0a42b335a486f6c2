"""Backend nbd with a fake nbd-client; `test_network_storage.py` of the integration tests has real devices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from kubeletx_flexvolume.backends import nbd
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.backends.nbd import NbdBackend
from kubeletx_flexvolume.commands import Commands
from kubeletx_flexvolume.values import StorageVolume

from kubeletx.api import InvalidConfig, TimedOut, Unavailable
from plugins.flexvolume.tests.agent.agent_model import at_once
from plugins.flexvolume.tests.backends.backend_model import BOOT, holder, volume
from plugins.flexvolume.tests.fake_programs import FakePrograms

VOLUME = volume("nbd", parameters={"server": "store"})


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A directory like ``/sys/block`` with three nbd devices."""
    made = tmp_path / "block"
    for number in range(3):
        (made / f"nbd{number}").mkdir(parents=True)
    return made


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "state" / "nbd"


@pytest.fixture
def backend(commands: Commands, system: Path, notes: Path) -> NbdBackend:
    return NbdBackend(commands, at_once, directory=notes, boot_id=BOOT, sys_block=system)


@pytest.fixture
def hasty(commands: Commands, system: Path, notes: Path) -> NbdBackend:
    """The backend with a short deadline."""
    return NbdBackend(commands, at_once, directory=notes, boot_id=BOOT, sys_block=system, seconds=0.3)


def device(number: int) -> AttachedSource:
    return AttachedSource(type=SourceType.DEVICE, source=f"/dev/nbd{number}")


def connecting(system: Path, number: int = 0) -> str:
    """Return shell commands that connect a device."""
    return f"echo 7 > {system}/nbd{number}/pid"


def named(name: str) -> StorageVolume:
    return msgspec.structs.replace(VOLUME, name=name)


@pytest.mark.parametrize("read_only", [False, True])
async def test_the_recorded_command_of_a_connection(
    backend: NbdBackend, programs: FakePrograms, system: Path, notes: Path, read_only: bool
) -> None:
    programs.answer("nbd-client", then=connecting(system))
    for _ in range(2):
        assert await backend.attach(VOLUME, read_only=read_only, secrets={}) == device(0)
    option = " -readonly" if read_only else ""
    assert programs.calls == [f"nbd-client store 10809 /dev/nbd0 -name data -timeout 60{option}"]
    assert (notes / "pv-1").read_text() == f"/dev/nbd0 {BOOT}"
    assert await backend.find(VOLUME) == device(0)


async def test_port_and_address_are_given_as_nbd_client_reads_them(
    backend: NbdBackend, programs: FakePrograms
) -> None:
    programs.answer("nbd-client")
    one = volume("nbd", parameters={"server": "[2001:db8::7]", "port": "10810"})
    await backend.attach(one, read_only=False, secrets={})
    assert programs.calls == ["nbd-client 2001:db8::7 10810 /dev/nbd0 -name data -timeout 60"]


async def test_the_recorded_command_of_a_disconnection(
    backend: NbdBackend, programs: FakePrograms, system: Path, notes: Path
) -> None:
    await backend.detach(VOLUME)
    assert programs.calls == []
    programs.answer("nbd-client", then=connecting(system))
    await backend.attach(VOLUME, read_only=False, secrets={})
    programs.forget()
    programs.answer("nbd-client", then=f"rm {system}/nbd0/pid")
    await backend.detach(VOLUME, force=True)
    assert programs.calls == ["nbd-client -d /dev/nbd0"]
    assert list(notes.iterdir()) == []
    assert await backend.find(VOLUME) is None


async def test_a_device_that_stays_connected_keeps_its_note(
    backend: NbdBackend, programs: FakePrograms, system: Path, notes: Path
) -> None:
    programs.answer("nbd-client", then=connecting(system))
    await backend.attach(VOLUME, read_only=False, secrets={})
    programs.answer("nbd-client", code=1, err="Device or resource busy")
    with pytest.raises(Unavailable, match="Device or resource busy"):
        await backend.detach(VOLUME)
    assert (notes / "pv-1").exists()


async def test_a_device_that_is_cut_off_but_open_is_in_use(
    backend: NbdBackend, programs: FakePrograms, system: Path
) -> None:
    """The kernel keeps it until its last user has closed it; nbd-client succeeds."""
    programs.answer("nbd-client", then=connecting(system))
    await backend.attach(VOLUME, read_only=False, secrets={})
    programs.answer("nbd-client")
    with pytest.raises(
        Unavailable, match="volume pv-1: /dev/nbd0 is in use; stop the process that has it open"
    ):
        await backend.detach(VOLUME, force=True)


async def test_a_mounted_device_is_disconnected_by_force_only(
    backend: NbdBackend, programs: FakePrograms, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.answer("nbd-client", then=connecting(system))
    await backend.attach(VOLUME, read_only=False, secrets={})
    programs.forget()
    monkeypatch.setattr(nbd, "_is_mounted", lambda _: True)
    programs.answer("nbd-client", then=f"rm {system}/nbd0/pid")
    with pytest.raises(Unavailable, match="/dev/nbd0 is in use"):
        await backend.detach(VOLUME)
    assert programs.calls == []
    await backend.detach(VOLUME, force=True)
    assert await backend.find(VOLUME) is None


async def test_a_failed_connection_leaves_no_note(
    backend: NbdBackend, programs: FakePrograms, notes: Path
) -> None:
    programs.answer("nbd-client", code=1, err="Negotiation failed: no such export")
    with pytest.raises(Unavailable, match=r"volume pv-1: nbd-client .*no such export"):
        await backend.attach(VOLUME, read_only=False, secrets={})
    assert list(notes.iterdir()) == []


async def test_a_connection_that_hangs_keeps_its_note_since_it_may_have_been_made(
    hasty: NbdBackend, programs: FakePrograms, notes: Path, system: Path
) -> None:
    programs.answer("nbd-client", then=f"{connecting(system)}; while :; do /bin/sleep 1; done")
    with pytest.raises(TimedOut, match="stopped with SIGINT"):
        await hasty.attach(VOLUME, read_only=False, secrets={})
    assert await hasty.find(VOLUME) == device(0)
    assert (notes / "pv-1").exists()


@pytest.mark.parametrize("force", [False, True])
async def test_a_disconnection_that_hangs_is_interrupted_and_then_killed(
    backend: NbdBackend, hasty: NbdBackend, programs: FakePrograms, system: Path, force: bool
) -> None:
    programs.answer("nbd-client", then=connecting(system))
    await backend.attach(VOLUME, read_only=False, secrets={})
    programs.answer("nbd-client", then="trap '' INT; while :; do /bin/sleep 1; done")
    with pytest.raises(TimedOut, match="stopped with SIGKILL"):
        await hasty.detach(VOLUME, force=force)
    assert await backend.find(VOLUME) == device(0)


async def test_volumes_that_connect_at_once_get_different_devices(
    backend: NbdBackend, programs: FakePrograms
) -> None:
    """The kernel shows a connection only when nbd-client has made it; the notes tell before."""
    programs.answer("nbd-client")
    found = await asyncio.gather(
        *(backend.attach(named(f"pv-{number}"), read_only=False, secrets={}) for number in range(3))
    )
    assert sorted(one.source for one in found) == ["/dev/nbd0", "/dev/nbd1", "/dev/nbd2"]
    with pytest.raises(Unavailable, match="no nbd device is free"):
        await backend.attach(named("pv-9"), read_only=False, secrets={})


async def test_connected_devices_of_others_are_not_used(
    backend: NbdBackend, programs: FakePrograms, system: Path
) -> None:
    (system / "nbd0" / "pid").write_text("9")
    programs.answer("nbd-client")
    assert await backend.attach(VOLUME, read_only=False, secrets={}) == device(1)
    assert await backend.attach(VOLUME, read_only=False, secrets={}) == device(
        1
    )  # its own note, not connected


async def test_a_note_of_a_device_that_is_not_connected_is_not_a_device(
    backend: NbdBackend, programs: FakePrograms, notes: Path
) -> None:
    """After a restart of the machine."""
    notes.mkdir(parents=True)
    (notes / "pv-1").write_text("/dev/nbd2")
    assert await backend.find(VOLUME) is None
    await backend.detach(VOLUME)
    assert programs.calls == []
    assert list(notes.iterdir()) == []


async def test_a_device_that_another_program_connected_after_a_restart_is_not_the_volumes(
    backend: NbdBackend, programs: FakePrograms, notes: Path, system: Path
) -> None:
    notes.mkdir(parents=True)
    (notes / "pv-1").write_text("/dev/nbd0 boot-0")
    (system / "nbd0" / "pid").write_text("9")
    assert await backend.find(VOLUME) is None
    programs.answer("nbd-client", then=connecting(system, 1))
    assert await backend.attach(VOLUME, read_only=False, secrets={}) == device(1)


async def test_a_note_of_a_former_version_counts(backend: NbdBackend, notes: Path, system: Path) -> None:
    """It has no boot ID; a device must not count as detached because the agent was upgraded."""
    notes.mkdir(parents=True)
    (notes / "pv-1").write_text("/dev/nbd0")
    (system / "nbd0" / "pid").write_text("7")
    assert await backend.find(VOLUME) == device(0)


async def test_a_volume_whose_note_cannot_be_read_does_not_count_as_detached(
    backend: NbdBackend, notes: Path
) -> None:
    (notes / "pv-1").mkdir(parents=True)  # stands for EMFILE and EIO
    with pytest.raises(Unavailable, match=r"cannot read .*pv-1: Is a directory"):
        await backend.detach(VOLUME)


async def test_a_holder_is_never_fenced(backend: NbdBackend) -> None:
    assert not (await backend.fence(VOLUME, holder())).fenced


@pytest.mark.parametrize(
    ("parameters", "image"),
    [
        ({}, "data"),
        ({"server": "-d"}, "data"),
        ({"server": "a b"}, "data"),
        ({"server": "store", "port": "0"}, "data"),
        ({"server": "store", "port": "10 -d"}, "data"),
        ({"server": "store", "port": "123456"}, "data"),
        ({"server": "store"}, "-d"),
        ({"server": "store"}, "../x"),
    ],
)
def test_options_that_are_not_plain_words_are_refused(
    backend: NbdBackend, parameters: dict[str, str], image: str
) -> None:
    with pytest.raises(InvalidConfig):
        backend.check(volume("nbd", parameters=parameters, image=image))
