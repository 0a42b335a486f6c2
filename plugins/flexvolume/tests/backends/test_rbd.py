"""Backend rbd as a recorded contract: no rbd is in the kernel of the tests, so they check the commands of rbd(8) and ceph(8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.backends.rbd import RbdBackend
from kubeletx_flexvolume.commands import Commands

from kubeletx.api import InvalidConfig, NotFound, TimedOut, Unavailable
from plugins.flexvolume.tests.backends.backend_model import MIB, holder, mount, volume
from plugins.flexvolume.tests.fake_programs import FakePrograms

VOLUME = volume("rbd", pool="fast")
CLUSTER = volume("rbd", pool="fast", parameters={"user": "node", "monitors": "10.0.0.1:6789,[2001:db8::1]"})
DEVICE = AttachedSource(type=SourceType.DEVICE, source="/dev/rbd0")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A directory like ``/sys/bus/rbd/devices``."""
    made = tmp_path / "rbd"
    made.mkdir()
    return made


@pytest.fixture
def backend(commands: Commands, system: Path) -> RbdBackend:
    return RbdBackend(commands, system)


def mapped(system: Path, number: int = 0, pool: str = "fast", image: str = "data") -> None:
    (system / str(number)).mkdir()
    (system / str(number) / "pool").write_text(f"{pool}\n")
    (system / str(number) / "name").write_text(f"{image}\n")


@pytest.mark.parametrize("read_only", [False, True])
async def test_the_recorded_command_of_map(
    backend: RbdBackend, programs: FakePrograms, read_only: bool
) -> None:
    programs.answer("rbd.map", "/dev/rbd0\n")
    assert await backend.attach(VOLUME, read_only=read_only, secrets={}) == DEVICE
    option = " --read-only" if read_only else ""
    assert programs.calls == [f"rbd map --id admin{option} fast/data"]


async def test_user_monitors_and_key_are_given_and_the_key_only_through_a_file(
    backend: RbdBackend, programs: FakePrograms
) -> None:
    programs.answer("rbd.map", "/dev/rbd0\n", then="cat /proc/self/fd/0 > key")
    await backend.attach(CLUSTER, read_only=False, secrets={"key": b"hunter2", "other": b"x"})
    assert programs.calls == [
        "rbd map --id node -m 10.0.0.1:6789,[2001:db8::1] --keyfile /proc/self/fd/0 fast/data"
    ]
    assert (programs.directory / "key").read_text() == "hunter2"


async def test_a_mapped_image_is_not_mapped_again(
    backend: RbdBackend, programs: FakePrograms, system: Path
) -> None:
    mapped(system, 0, image="data2")
    mapped(system, 1, pool="slow")
    assert await backend.find(VOLUME) is None
    mapped(system, 2)
    found = AttachedSource(type=SourceType.DEVICE, source="/dev/rbd2")
    assert await backend.find(VOLUME) == await backend.attach(VOLUME, read_only=False, secrets={}) == found
    assert programs.calls == []


async def test_an_image_whose_device_cannot_be_read_does_not_count_as_unmapped(
    backend: RbdBackend, system: Path
) -> None:
    (system / "0" / "pool").mkdir(parents=True)  # stands for EMFILE and EIO
    with pytest.raises(Unavailable, match=r"cannot read .*pool: Is a directory"):
        await backend.detach(VOLUME)


async def test_a_device_that_disappears_meanwhile_is_not_mapped(backend: RbdBackend, system: Path) -> None:
    (system / "0").mkdir()
    assert await backend.find(VOLUME) is None


async def test_the_recorded_commands_of_a_new_image(backend: RbdBackend, programs: FakePrograms) -> None:
    programs.answer("rbd.info", code=2, err="No such file or directory")
    programs.answer("rbd.create")
    programs.answer("rbd.map", "/dev/rbd0\n")
    one = volume("rbd", pool="fast", size_bytes=10 * MIB + 1)
    assert await backend.attach(one, read_only=False, secrets={"key": b"k"}) == DEVICE
    assert programs.calls == [
        "rbd info --id admin --keyfile /proc/self/fd/0 fast/data",
        "rbd create --id admin --keyfile /proc/self/fd/0 --size 11M fast/data",
        "rbd map --id admin --keyfile /proc/self/fd/0 fast/data",
    ]
    programs.forget()
    programs.answer("rbd.info", "rbd image 'data'")
    await backend.attach(one, read_only=False, secrets={})
    assert [call.split()[1] for call in programs.calls] == ["info", "map"]


async def test_a_missing_image_without_a_size_is_not_made(
    backend: RbdBackend, programs: FakePrograms
) -> None:
    programs.answer("rbd.map", code=2, err="rbd: error opening image data")
    with pytest.raises(NotFound, match=r"image fast/data does not exist; make it, or give option size"):
        await backend.attach(VOLUME, read_only=False, secrets={})
    assert len(programs.calls) == 1


@pytest.mark.parametrize("call", ["info", "create", "map"])
async def test_a_failed_command_says_what_rbd_says(
    backend: RbdBackend, programs: FakePrograms, call: str
) -> None:
    programs.answer("rbd.info", code=2)
    programs.answer("rbd.create")
    programs.answer("rbd.map", "/dev/rbd0\n")
    programs.answer(f"rbd.{call}", code=110, err="rbd: couldn't connect to the cluster!")
    one = volume("rbd", pool="fast", size_bytes=MIB)
    with pytest.raises(Unavailable, match=rf"volume pv-1: rbd {call} .*couldn't connect to the cluster!"):
        await backend.attach(one, read_only=False, secrets={"key": b"hunter2"})


@pytest.mark.parametrize("force", [False, True])
async def test_the_recorded_command_of_unmap(
    backend: RbdBackend, programs: FakePrograms, system: Path, force: bool
) -> None:
    await backend.detach(VOLUME)
    assert programs.calls == []
    mapped(system)
    programs.answer("rbd.unmap", then=f"rm -r {system}/0")
    await backend.detach(VOLUME, force=force)
    option = " -o force" if force else ""
    assert programs.calls == [f"rbd unmap{option} /dev/rbd0"]


async def test_an_image_that_stays_mapped_is_reported(
    backend: RbdBackend, programs: FakePrograms, system: Path
) -> None:
    """The state of the kernel decides, and not the exit status."""
    mapped(system)
    programs.answer("rbd.unmap", code=16, err="rbd: sysfs write failed: Device or resource busy")
    with pytest.raises(Unavailable, match="Device or resource busy"):
        await backend.detach(VOLUME)
    programs.answer("rbd.unmap", code=16, then=f"rm -r {system}/0")
    await backend.detach(VOLUME)


@pytest.mark.parametrize(("trap", "name"), [("", "SIGINT"), ("trap '' INT; ", "SIGKILL")])
@pytest.mark.parametrize("force", [False, True])
async def test_an_unmap_that_hangs_is_interrupted_at_its_limit_and_then_killed(
    commands: Commands,
    programs: FakePrograms,
    system: Path,
    trap: str,
    name: str,
    force: bool,
) -> None:
    backend = RbdBackend(commands, system, seconds=0.3)
    mapped(system)
    programs.answer("rbd.unmap", then=f"{trap}while :; do /bin/sleep 1; done")
    with pytest.raises(TimedOut, match=rf"did not end within 0.3 s, and was stopped with {name}"):
        await backend.detach(VOLUME, force=force)
    assert await backend.find(VOLUME) is not None


# --- fencing ---


def watchers(*addresses: str) -> str:
    found = [{"address": one, "client": number, "cookie": 1} for number, one in enumerate(addresses)]
    return json.dumps({"watchers": found})


async def test_the_recorded_commands_of_a_fence(backend: RbdBackend, programs: FakePrograms) -> None:
    """Without the number of seconds Ceph would accept the clients again after an hour."""
    programs.answer("rbd.status", watchers("10.0.0.8:0/2", "10.0.0.7:0/1", "10.0.0.7:0/1"))
    programs.answer("ceph")
    result = await backend.fence(CLUSTER, holder())
    assert result.fenced
    assert result.why == "Ceph refuses the clients 10.0.0.7:0/1, 10.0.0.8:0/2"
    client = "--id node -m 10.0.0.1:6789,[2001:db8::1]"
    assert programs.calls == [
        f"rbd status {client} --format json fast/data",
        f"ceph {client} osd blocklist add 10.0.0.7:0/1 157784760",
        f"ceph {client} osd blocklist add 10.0.0.8:0/2 157784760",
    ]


async def test_watchers_of_older_releases_are_an_object(backend: RbdBackend, programs: FakePrograms) -> None:
    old = {"watchers": {"watcher": {"address": "10.0.0.7:0/1", "client": 1, "cookie": 1}}}
    programs.answer("rbd.status", json.dumps(old))
    programs.answer("ceph")
    assert (await backend.fence(VOLUME, holder())).fenced


async def test_a_fence_that_proves_nothing_is_none(
    backend: RbdBackend, programs: FakePrograms, system: Path
) -> None:
    programs.answer("rbd.status", watchers())
    result = await backend.fence(VOLUME, holder())
    assert (result.fenced, result.why) == (
        False,
        "no client has the image open, and the holder's address is unknown",
    )
    programs.answer("rbd.status", watchers("10.0.0.7:0/1", "10.0.0.8:0/2"))
    programs.answer("ceph", code=13, err="access denied")
    result = await backend.fence(VOLUME, holder())
    assert not result.fenced
    assert "access denied" in result.why
    mapped(system)
    programs.forget()
    result = await backend.fence(VOLUME, holder())
    assert (result.fenced, result.why) == (False, "it is attached to this machine as /dev/rbd0")
    assert programs.calls == []


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"watchers": [1]}', '{"watchers": [{}]}'])
async def test_a_list_of_watchers_that_cannot_be_read_is_an_error(
    backend: RbdBackend, programs: FakePrograms, text: str
) -> None:
    programs.answer("rbd.status", text)
    with pytest.raises(Unavailable, match="printed no list of watchers"):
        await backend.fence(VOLUME, holder())
    assert len(programs.calls) == 1


@pytest.mark.parametrize("address", ["-h", "10.0.0.7:0/1 --yes", "", "a\n", "x" * 300])
async def test_an_address_that_is_none_is_not_passed_on(
    backend: RbdBackend, programs: FakePrograms, address: str
) -> None:
    programs.answer("rbd.status", watchers(address))
    with pytest.raises(Unavailable, match="printed no list of watchers"):
        await backend.fence(VOLUME, holder())
    assert len(programs.calls) == 1


async def test_a_failed_status_is_an_error(backend: RbdBackend, programs: FakePrograms) -> None:
    programs.answer("rbd.status", code=1, err="no cluster")
    with pytest.raises(Unavailable, match="no cluster"):
        await backend.fence(VOLUME, holder())


# --- the rest ---


@pytest.mark.parametrize(
    "changes",
    [
        {"pool": "-p"},
        {"pool": "a/b"},
        {"image": "a@b"},
        {"image": "-x"},
        {"parameters": {"user": "--conf"}},
        {"parameters": {"user": "a b"}},
        {"parameters": {"monitors": "-m"}},
        {"parameters": {"monitors": "a b"}},
        {"parameters": {"monitors": "a;b"}},
    ],
)
def test_options_that_are_not_plain_words_are_refused(
    backend: RbdBackend, changes: dict[str, object]
) -> None:
    with pytest.raises(InvalidConfig):
        backend.check(volume("rbd", **changes))


def test_a_mounted_image_is_recognized(backend: RbdBackend, system: Path) -> None:
    assert backend.identify("pv-1", mount("/dev/rbd1")) is None
    mapped(system, 1)
    (system / "2").mkdir()  # a device that disappears has no files
    assert backend.identify("pv-1", mount("/dev/rbd1", fs_type="xfs")) == volume(
        "rbd", pool="fast", fs_type="xfs"
    )
