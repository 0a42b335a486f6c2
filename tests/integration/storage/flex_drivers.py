"""Executable FlexVolume drivers as third parties write them, to the public specification.

They know nothing of kubeletx. Each is a shell script with a directory of its own for what it stores.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubeletx_flexvolume.host.journal import FlexEntry, entry_files
from kubeletx_flexvolume.host.volumes import FlexVolumes

from kubeletx.api import VolumeRequest
from kubeletx.linux.json_files import JsonFiles
from kubeletx.linux.mounts import mounts_below, read_mounts
from kubeletx.testing import FakeVolumeHost, volume_request

MIB = 1 << 20
TMPFS, LOOP, SECRET = "example.com/tmpfs", "example.com/loop", "example.com/secret"

TMPFS_SCRIPT = """
case "$1" in
init) echo '{"status":"Success","capabilities":{"attach":false,"supportsMetrics":true}}' ;;
mount)
    size=$(printf '%s' "$3" | sed -n 's/.*"size":"\\([0-9]*\\)".*/\\1/p')
    mkdir -p "$2" && mount -t tmpfs -o "size=${size:-8388608}" tmpfs "$2" \\
        && echo '{"status":"Success"}' || { echo '{"status":"Failure","message":"mount failed"}'; exit 1; } ;;
unmount)
    umount "$2" && echo '{"status":"Success"}' || { echo '{"status":"Failure","message":"busy"}'; exit 1; } ;;
*) echo '{"status":"Not supported"}'; exit 1 ;;
esac
"""

LOOP_SCRIPT = """
name() { printf '%s' "$1" | sed -n 's/.*"kubernetes.io\\/pvOrVolumeName":"\\([^"]*\\)".*/\\1/p'; }
device() { losetup --noheadings --output NAME --associated "$state/$1.img" | head -n 1; }
fail() { echo "{\\"status\\":\\"Failure\\",\\"message\\":\\"$1\\"}"; exit 1; }
case "$1" in
init) echo '{"status":"Success","capabilities":{"attach":true,"supportsMetrics":true}}' ;;
attach)
    image="$state/$(name "$2").img"
    [ -e "$image" ] || truncate --size=16M "$image"
    found=$(device "$(name "$2")")
    [ -n "$found" ] || found=$(losetup --find --show "$image" 2>/dev/null) || fail "no free loop device"
    echo "{\\"status\\":\\"Success\\",\\"device\\":\\"$found\\"}" ;;
waitforattach) echo "{\\"status\\":\\"Success\\",\\"device\\":\\"$2\\"}" ;;
detach)
    found=$(device "$2")
    [ -z "$found" ] || losetup --detach "$found" || fail "cannot detach $found"
    # The kernel detaches a device that another process has open, such as losetup --find, when it is closed.
    for _ in $(seq 100); do [ -n "$(device "$2")" ] && sleep 0.1 || break; done
    [ -z "$(device "$2")" ] || fail "$found is in use"
    echo '{"status":"Success"}' ;;
*) echo '{"status":"Not supported"}'; exit 1 ;;
esac
"""

SECRET_SCRIPT = """
case "$1" in
init) echo '{"status":"Success","capabilities":{"attach":false}}' ;;
mount)
    key=$(printf '%s' "$3" | sed -n 's/.*"kubernetes.io\\/secret\\/password":"\\([^"]*\\)".*/\\1/p' | base64 -d)
    echo "login with $key" >&2
    [ "$key" = "$(cat "$state/password")" ] || { echo "{\\"status\\":\\"Failure\\",\\"message\\":\\"bad password $key\\"}"; exit 1; }
    mount --bind "$state/data" "$2" && echo '{"status":"Success"}' ;;
unmount) umount "$2" && echo '{"status":"Success"}' ;;
*) echo '{"status":"Not supported"}' ;;
esac
"""

SCRIPTS = {TMPFS: TMPFS_SCRIPT, LOOP: LOOP_SCRIPT, SECRET: SECRET_SCRIPT}


class StorageNode:
    """A node in a temporary directory, on which the three drivers can be installed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.state = self.directory / "driver-state"
        self.calls_file = self.directory / "calls"
        (self.directory / "state").mkdir(exist_ok=True)
        self.host = FakeVolumeHost(self.directory / "state")
        self.state.mkdir(exist_ok=True)
        (self.state / "data").mkdir(exist_ok=True)
        (self.state / "password").write_text("hunter2-secret")

    def install(self, name: str) -> None:
        """Install a driver, unless it is installed."""
        path = self.host.volume_plugin_directory / name.replace("/", "~") / name.rpartition("/")[2]
        if path.exists():
            return
        path.parent.mkdir(exist_ok=True)
        head = f'#!/bin/sh\nstate={shlex.quote(str(self.state))}\necho "$1" >> {shlex.quote(str(self.calls_file))}\n'
        temporary = path.with_name(".new")
        temporary.write_text(head + SCRIPTS[name])
        temporary.chmod(0o755)
        temporary.replace(path)

    def make(self, entries: JsonFiles[FlexEntry] | None = None) -> FlexVolumes:
        """Return a volume driver. `entries`: as in `FlexVolumes`."""
        return FlexVolumes(None, self.host, entries=entries)

    def request(self, name: str, driver: str, **fields: Any) -> VolumeRequest:
        """Return a request; its driver is installed, and its target exists."""
        self.install(driver)
        request = volume_request(self.directory / "root", name, source="flexVolume", driver=driver, **fields)
        Path(request.target).mkdir(parents=True, exist_ok=True)
        return request

    def calls(self) -> list[str]:
        lines = self.calls_file.read_text().split("\n") if self.calls_file.exists() else []
        return [line for line in lines if line and line != "init"]

    def image(self, name: str) -> Path:
        return self.state / f"{name}.img"

    def devices(self) -> list[str]:
        """Return the loop devices of all images of this node."""
        found = []
        for image in sorted(self.state.glob("*.img")):
            output = subprocess.run(
                ["losetup", "--noheadings", "--output", "NAME", "--associated", str(image)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            found += output.split()
        return found

    def mounts(self) -> list[str]:
        return [one.target for one in mounts_below(read_mounts(), self.directory)]

    def journal(self) -> list[str]:
        return [
            entry.volume
            for entry in entry_files(self.host.state_directory / "volumes").load().values.values()
        ]

    def left(self) -> list[str]:
        """Return everything that a released volume must not leave."""
        return [*self.mounts(), *self.devices(), *self.journal(), *self.running()]

    def running(self) -> list[str]:
        """Return the keys of calls that run and change a volume; an ``init`` changes none."""
        found = []
        for record in (self.host.state_directory / "running").iterdir():
            with suppress(FileNotFoundError):  # it has ended meanwhile
                found.append(json.loads(record.read_bytes())["key"])
        return [key for key in found if key]

    def clean_up(self) -> None:
        """Unmount and detach everything of this node, also after a failed test."""
        for target in reversed(self.mounts()):
            subprocess.run(["umount", target], check=False)
        for device in self.devices():
            with suppress(OSError):
                subprocess.run(["losetup", "--detach", device], check=False)


def write(request: VolumeRequest, text: str) -> None:
    (Path(request.target) / "file").write_text(text)


def read(request: VolumeRequest) -> str:
    return (Path(request.target) / "file").read_text()


def grow(node: StorageNode, device: str, size_bytes: int) -> None:
    """Make the image of a device larger, and the device with it."""
    backing = Path(f"/sys/block/{Path(device).name}/loop/backing_file").read_text().strip()
    assert Path(backing).parent == node.state
    os.truncate(backing, size_bytes)
    subprocess.run(["losetup", "--set-capacity", device], check=True)
