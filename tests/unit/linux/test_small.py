"""Locks, messages to the service manager, the boot ID, and calls of the C library."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.linux.boot import boot_id
from kubeletx.linux.libc import call
from kubeletx.linux.locks import LockHeld, hold_lock, lock_descriptor, lock_holders, take_lock
from kubeletx.linux.notify import notify, watchdog_seconds


def test_one_holder_has_a_lock_and_its_end_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_lock(path):
        with (
            pytest.raises(LockHeld, match="is locked by a process that is not visible here"),
            hold_lock(path),
        ):
            pass  # of this process: the error names others only
        assert lock_holders(path) == ()
    os.close(take_lock(path))
    with hold_lock(path, waits=True):
        pass


def test_a_directory_is_locked_as_a_file_is_and_a_link_is_refused(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY) for _ in "12")
    lock_descriptor(first, tmp_path)
    with pytest.raises(LockHeld):
        lock_descriptor(second, tmp_path)
    os.close(first)
    lock_descriptor(second, tmp_path)
    os.close(second)
    (tmp_path / "link").symlink_to("target")
    with pytest.raises(OSError, match="symbolic links"):
        take_lock(tmp_path / "link")


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_message_reaches_the_service_manager(tmp_path: Path, is_abstract: bool) -> None:
    path = f"@kubeletx-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(10)
        manager.bind(path.replace("@", "\0", 1))
        notify("READY=1", {"NOTIFY_SOCKET": path})
        assert manager.recv(100) == b"READY=1"
    notify("READY=1", {"NOTIFY_SOCKET": path})  # the manager has gone
    notify("READY=1", {})


@given(
    st.integers(0, 10**12) | st.sampled_from(["", "-1", "1.5", "x", "²"]), st.sampled_from(["", "mine", "1"])
)
def test_a_watchdog_is_of_this_process_alone(microseconds: int | str, pid: str) -> None:
    environment = {
        "NOTIFY_SOCKET": "/n",
        "WATCHDOG_USEC": str(microseconds),
        "WATCHDOG_PID": str(os.getpid()) if pid == "mine" else pid,
    }
    is_expected = isinstance(microseconds, int) and microseconds > 0 and pid != "1"
    assert watchdog_seconds(environment) == (int(microseconds) / 1e6 if is_expected else None)
    assert watchdog_seconds({**environment, "NOTIFY_SOCKET": ""}) is None


def test_the_boot_id_is_the_kernels(tmp_path: Path) -> None:
    assert len(boot_id()) == 36
    (tmp_path / "boot_id").write_text("b-1\n")
    assert boot_id(tmp_path / "boot_id") == "b-1"


def test_a_failed_call_is_an_error_of_the_system() -> None:
    assert call("getpid") == os.getpid()
    with pytest.raises(FileNotFoundError) as failure:
        call("umount2", b"/no/such/mount", 0, path="/no/such/mount")
    assert failure.value.filename == "/no/such/mount"
