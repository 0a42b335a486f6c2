"""What is written down survives restarts and concurrent writers."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.records import Records, Run, SandboxRecord, UnitRecord
from kubeletx_libvirt.runtime import LibvirtRuntime
from msgspec.structs import replace

from kubeletx.api import Internal, Nic, PermissionDenied, SandboxId, Unavailable, UnitId
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec

UNIT, SANDBOX = UnitId("unit"), SandboxId("sandbox")
P = ParamSpec("P")
R = TypeVar("R")


class BusyHost(FakeHost):
    """All of its threads may be taken."""

    is_busy = False

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As with the real one."""
        if self.is_busy:
            raise Unavailable("no thread for this call")
        return await super().blocking(function, *args, **kwargs)


class FullHost(FakeHost):
    """Nothing can be written while its disk is full."""

    is_full = False

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As with the real one."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return await super().blocking(function, *args, **kwargs)


async def test_a_machine_ends_on_a_full_disk_too_and_none_is_made_there(tmp_path: Path) -> None:
    host = FullHost(tmp_path)
    records = Records(host)
    sandbox = SandboxRecord(spec=sandbox_spec(), created_at_ns=1)
    await records.save_sandbox(SANDBOX, sandbox)
    host.is_full = True
    await records.save_run(UNIT, Run(finished_at_ns=5))
    await records.save_sandbox(SANDBOX, replace(sandbox, is_stopped=True), must_last=False)
    assert (records.run_of(UNIT).finished_at_ns, records.sandboxes[SANDBOX].is_stopped) == (5, True)
    for making in (
        records.save_sandbox(SANDBOX, sandbox),
        records.save_unit(UNIT, UnitRecord(spec=unit_spec())),
    ):
        with pytest.raises(
            Unavailable, match=r"cannot write .*/record\.json: No space left .* make room on this"
        ):
            await making
    host.is_full = False
    await records.save_run(UNIT, Run(finished_at_ns=6))
    again = Records(host)
    await again.load()
    assert again.run_of(UNIT).finished_at_ns == 6


async def test_records_come_back_after_a_restart(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    records = Records(host)
    await records.load()
    await records.save_sandbox(
        SANDBOX, SandboxRecord(spec=sandbox_spec(), created_at_ns=1, ips=("10.0.0.1",))
    )
    await records.save_unit(UNIT, UnitRecord(spec=unit_spec(), resources={"vcpus": 2}))
    await records.save_run(UNIT, Run(started_at_ns=5, restarts=3))
    again = Records(host)
    await again.load()
    assert (again.sandboxes, again.units, again.runs) == (records.sandboxes, records.units, records.runs)


async def test_of_many_writes_at_once_the_last_one_stays(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    records = Records(host)
    await asyncio.gather(*(records.save_run(UNIT, Run(restarts=number)) for number in range(20)))
    again = Records(host)
    await again.load()
    assert again.run_of(UNIT).restarts == 19


async def test_a_size_is_measured_while_an_interface_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = LibvirtRuntime(endpoint("test:///default", workload_type="vm"), Settings(), FakeHost(tmp_path))
    before = UnitRecord(spec=unit_spec(), resources={"vcpus": 1})
    await runtime.records.save_unit(UNIT, before)
    nics = (Nic(name="eth9", network="extra"),)
    attaching: list[asyncio.Task[None]] = []

    async def use(*_: object) -> dict[str, int]:
        writing = runtime.records.save_unit(UNIT, replace(before, nics=nics))
        attaching.append(asyncio.create_task(writing))
        await asyncio.sleep(0)
        return {"vcpus": 2}

    monkeypatch.setattr(runtime.connection, "use", use)
    await runtime.resizes.measure(UNIT)
    await asyncio.gather(*attaching)
    again = Records(FakeHost(tmp_path))
    await again.load()
    assert (again.units[UNIT].nics, again.units[UNIT].resources["vcpus"]) == (nics, 2)
    assert again.units == runtime.records.units


async def test_what_is_forgotten_leaves_no_file_even_beside_a_late_write(tmp_path: Path) -> None:
    records = Records(FakeHost(tmp_path))
    await records.save_unit(UNIT, UnitRecord(spec=unit_spec()))
    await asyncio.gather(records.save_run(UNIT, Run()), records.forget_unit(UNIT))
    assert not records.unit_directory(UNIT).exists()


async def test_a_look_that_ends_after_the_removal_does_not_bring_the_files_back(tmp_path: Path) -> None:
    records = Records(FakeHost(tmp_path))
    record = UnitRecord(spec=unit_spec())
    await records.save_unit(UNIT, record)
    await records.forget_unit(UNIT)
    await records.save_run(UNIT, Run(finished_at_ns=1))
    await records.save_unit(UNIT, record)
    assert not records.unit_directory(UNIT).exists()
    await records.save_unit(UNIT, record, is_new=True)
    await records.save_run(UNIT, Run(started_at_ns=2))
    assert records.run_of(UNIT).started_at_ns == 2
    assert records.unit_directory(UNIT).is_dir()


async def test_a_removal_that_found_no_thread_can_be_repeated(tmp_path: Path) -> None:
    host = BusyHost(tmp_path)
    records = Records(host)
    await records.save_unit(UNIT, UnitRecord(spec=unit_spec()))
    host.is_busy = True
    with pytest.raises(Unavailable):
        await records.forget_unit(UNIT)
    assert UNIT in records.units
    host.is_busy = False
    await records.forget_unit(UNIT)
    assert UNIT not in records.units
    assert not records.unit_directory(UNIT).exists()


async def test_half_written_records_are_passed_over(tmp_path: Path) -> None:
    directory = tmp_path / "sandboxes" / "broken"
    directory.mkdir(parents=True)
    (directory / "record.json").write_text("{")
    records = Records(FakeHost(tmp_path))
    await records.load()
    assert records.sandboxes == {}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "Read-only file system; mount the file system of {path} writable"),
        (errno.EACCES, "Permission denied; give the agent access to {path}"),
    ],
)
async def test_a_state_directory_that_cannot_be_written_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    records = Records(FakeHost(tmp_path))
    monkeypatch.setattr("kubeletx_libvirt.records.os.open", refuse)  # root is refused nothing
    sandbox = SandboxRecord(spec=sandbox_spec(), created_at_ns=1)
    for directory, name, saving in (
        (records.sandbox_directory(SANDBOX), "record.json", records.save_sandbox(SANDBOX, sandbox)),
        (
            records.unit_directory(UNIT),
            "record.json",
            records.save_unit(UNIT, UnitRecord(spec=unit_spec()), is_new=True),
        ),
        (records.unit_directory(UNIT), "run.json", records.save_run(UNIT, Run(finished_at_ns=5))),
    ):
        with pytest.raises(PermissionDenied) as raised:
            await saving
        path = directory / name
        assert str(raised.value) == f"cannot write {path}: {words.format(path=path)}"


async def test_a_directory_that_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(path))

    records = Records(FakeHost(tmp_path))
    monkeypatch.setattr("kubeletx_libvirt.records.shutil.rmtree", refuse)  # a real one needs a mount
    for forgetting in (records.forget_sandbox(SANDBOX), records.forget_unit(UNIT)):
        with pytest.raises(Internal, match=f"cannot remove {tmp_path}.*: Device or resource busy"):
            await forgetting


async def test_a_write_that_another_object_of_the_runtime_overtakes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, renames = FakeHost(tmp_path), 0
    rename = Path.replace

    def overtaken(new: Path, target: Path) -> Path:
        nonlocal renames
        renames += 1
        made = rename(new, target)
        return rename(new, target) if renames == 1 else made  # the first one finds its file renamed already

    monkeypatch.setattr(Path, "replace", overtaken)
    await Records(host).save_run(UNIT, Run(finished_at_ns=5))
    later = Records(host)
    await later.load()
    assert (later.run_of(UNIT).finished_at_ns, renames) == (5, 2)
