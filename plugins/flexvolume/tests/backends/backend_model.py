"""Values and models that the tests of the backends share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from kubeletx_flexvolume.values import Holder, StorageVolume

from kubeletx.linux.mounts import MountPoint

MIB = 1 << 20
BOOT = "boot-1"


def volume(backend: str, **changes: Any) -> StorageVolume:
    return msgspec.structs.replace(StorageVolume(name="pv-1", backend=backend, image="data"), **changes)


def holder(**changes: Any) -> Holder:
    made = Holder(
        node="n2", boot_id=BOOT, pod_namespace="default", pod="db-0", pod_uid="u1", mount_dir="/pods/u1/v"
    )
    return msgspec.structs.replace(made, **changes)


def mount(source: str = "/dev/loop3", **changes: Any) -> MountPoint:
    made = MountPoint(
        target="/kubelet/m", root="/", device="7:3", fs_type="ext4", source=source, options=("rw",)
    )
    return msgspec.structs.replace(made, **changes)


class SysLoop:
    """A directory like ``/sys/block`` with loop devices, which fake programs change with shell commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "vda").mkdir()
        (directory / "loop9").mkdir()  # a device without a file

    def add(
        self, file: str, *, name: str = "loop3", is_read_only: bool = False, is_ending: bool = False
    ) -> None:
        one = self.directory / name
        (one / "loop").mkdir(parents=True)
        (one / "loop" / "backing_file").write_text(f"{file}\n")
        (one / "loop" / "autoclear").write_text(f"{int(is_ending)}\n")
        (one / "ro").write_text(f"{int(is_read_only)}\n")

    def adding(self, file: str, *, is_read_only: bool = False) -> str:
        """Return shell commands that do the same as `add`."""
        one = self.directory / "loop3"
        return (
            f"mkdir -p {one}/loop; echo '{file}' > {one}/loop/backing_file; echo 0 > {one}/loop/autoclear; "
            f"echo {int(is_read_only)} > {one}/ro"
        )

    def removing(self) -> str:
        """Return shell commands that remove the file of the device."""
        return f"rm -r {self.directory}/loop3/loop"
