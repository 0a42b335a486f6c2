"""A node for tests of the FlexVolume host: drivers as real executables, mounts and programs as text files.

Drivers are shell scripts. They record their calls, and "mount" by adding a line to a file that the host reads as its
table of mounts; so no root is needed. A `FakeNode` is what the host's own mount, umount, blkid and mkfs do there.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from kubeletx_flexvolume.config import FlexSettings
from kubeletx_flexvolume.host.journal import VERSION, FlexEntry
from kubeletx_flexvolume.host.status import FILE_NAME, FlexDriverStatus
from kubeletx_flexvolume.host.volumes import FlexVolumes

from kubeletx.api import Unavailable, VolumeRequest
from kubeletx.linux.json_files import JsonFiles
from kubeletx.linux.mounts import MountPoint
from kubeletx.linux.programs import ProgramResult
from kubeletx.testing import FakeVolumeHost
from kubeletx.testing.specs import volume_request

DRIVER = "example.com/ramdisk"
OK = '{"status": "Success"}'
NOT_SUPPORTED = '{"status": "Not supported"}'
PLAIN = '{"status": "Success", "capabilities": {"attach": false}}'
"""Reply of ``init`` of a driver without attach."""


def failure(message: str) -> str:
    """Return the reply of a failed call."""
    return json.dumps({"status": "Failure", "message": message})


def says(reply: str, exit_code: int = 0) -> str:
    """Return shell commands that print a reply and exit."""
    return f"printf '%s\\n' {shlex.quote(reply)}; exit {exit_code}"


class FakeNode:
    """Programs of the node: an object to call, as `RunProgram`; `table` is the host's table of mounts."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "mounts"
        self.file.touch()
        self.ran: list[str] = []
        """Programs that were run, with their arguments."""
        self._results = {"blockdev": ProgramResult(name="blockdev", exit_code=0, stdout=b"1073741824\n")}
        """Results by the first word of the program; others succeed without output."""
        self.holds: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        """Programs that run until the second event is set, by their first word; the first event: it has begun."""

    def table(self) -> tuple[MountPoint, ...]:
        lines = [line.split() for line in self.file.read_text().split("\n") if line]
        return tuple(
            MountPoint(
                target=target, root="/", device=source, fs_type=fs_type, source=source, options=(mode,)
            )
            for target, fs_type, source, mode in lines
        )

    @property
    def mounted(self) -> list[str]:
        return [one.target for one in self.table()]

    async def __call__(self, program: Sequence[str], *, key: str) -> ProgramResult:
        assert key
        self.ran.append(" ".join(program))
        if program[0] in self.holds:
            begun, ends = self.holds[program[0]]
            begun.set()
            await ends.wait()
            self.ran.append(f"{program[0]} has ended")
        if (result := self._results.get(program[0])) is not None:
            return result
        if program[0] == "mount":
            mode = "ro" if "ro" in program[-4].split(",") else "rw"
            if program[2] == "-t":
                self.mount(program[-1], program[3], program[-2], mode)
            else:  # a bind has the source of the mount that it shows
                (bound,) = (mount for mount in self.table() if mount.target == program[-2])
                self.mount(program[-1], bound.fs_type, bound.source, mode)
        if program[0] == "umount":
            self.unmount(program[-1])
        return ProgramResult(name=program[0], exit_code=0)

    def answer(self, program: str, *, code: int = 0, out: str = "", err: str = "") -> None:
        """Set the result of a program."""
        result = ProgramResult(name=program, exit_code=code, stdout=out.encode(), stderr=err.encode())
        self._results[program] = result

    def hold(self, program: str) -> tuple[asyncio.Event, asyncio.Event]:
        """Let a program run until the second event is set; the first one is set when it has begun."""
        return self.holds.setdefault(program, (asyncio.Event(), asyncio.Event()))

    def mount(self, target: str, fs_type: str = "tmpfs", source: str = "tmpfs", mode: str = "rw") -> None:
        with self.file.open("a") as file:
            file.write(f"{target} {fs_type} {source} {mode}\n")

    def unmount(self, target: str) -> None:
        lines = [line for line in self.file.read_text().split("\n") if line]
        at = max((i for i, line in enumerate(lines) if line.split()[0] == target), default=-1)
        if at >= 0:
            del lines[at]
        self.file.write_text("".join(f"{line}\n" for line in lines))


class FaultyFiles(JsonFiles[FlexEntry]):
    """Files of the journal on a disk that is full, or that does not return one of them."""

    is_full = False
    unreadable = ""
    """Name of the file that cannot be read."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, FlexEntry, version=VERSION, name=lambda entry: entry.key)

    def put(self, value: FlexEntry) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().put(value)

    def read(self, name: str) -> FlexEntry | None:
        if name == self.unreadable:
            raise Unavailable(f"{self.path(name)} cannot be read: Input/output error")
        return super().read(name)


class FixedHost(FakeVolumeHost):
    """A host with another directory of drivers, which it does not make."""

    directory = Path("/")

    @property
    def volume_plugin_directory(self) -> Path:
        return self.directory


class FlexNode:
    """One node with a `FlexVolumes` and its directories."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.calls_file = directory / "calls"
        self.host = FakeVolumeHost(directory / "state")
        self.host.state_directory.mkdir()
        self.node = FakeNode(directory)
        self.entries = FaultyFiles(self.host.state_directory / "volumes")
        self.settings = FlexSettings(**settings)
        self.opened: list[FlexVolumes] = []

    @property
    def plugins(self) -> Path:
        return self.host.volume_plugin_directory

    def make(self) -> FlexVolumes:
        """Return a new volume driver, which is not open."""
        return FlexVolumes(
            self.settings, self.host, run=self.node, table=self.node.table, entries=self.entries
        )

    async def open(self) -> FlexVolumes:
        """Return a new open volume driver, as after a restart of the agent."""
        made = self.make()
        self.opened.append(made)
        await made.open()
        return made

    async def close(self) -> None:
        for one in self.opened:
            await one.close()

    def install(self, commands: Mapping[str, str], name: str = DRIVER, *, rest: str = "") -> Path:
        """Install a driver: shell commands by the driver's first argument. `rest`: for all other commands.

        The file appears as a whole, as installers do it. In the commands, ``$mounts`` is the file of mounts, and the functions
        `add` and `drop` add and remove a mount.
        """
        rest = rest or says(NOT_SUPPORTED)
        cases = "\n".join(f"{command}) {script} ;;" for command, script in commands.items())
        return self.install_text(
            f"""#!/bin/sh
mounts={shlex.quote(str(self.node.file))}
add() {{ echo "$1 ${{2:-tmpfs}} ${{3:-tmpfs}} rw" >> "$mounts"; }}
drop() {{ grep -v "^$1 " "$mounts" > "$mounts.new"; mv "$mounts.new" "$mounts"; }}
echo "$@" >> {shlex.quote(str(self.calls_file))}
case "$1" in
{cases}
*) {rest} ;;
esac
""",
            name,
        )

    def install_text(self, text: str, name: str = DRIVER) -> Path:
        """Install an executable with this content."""
        path = self.path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(".new")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(path)
        return path

    def path_of(self, name: str = DRIVER) -> Path:
        return self.plugins / name.replace("/", "~") / name.rpartition("/")[2]

    def install_plain(self, name: str = DRIVER, **commands: str) -> Path:
        """Install a driver without attach that mounts and unmounts; `commands` replace or add commands."""
        base = {
            "init": says(PLAIN),
            "mount": f'add "$2"; {says(OK)}',
            "unmount": f'drop "$2"; {says(OK)}',
        }
        return self.install({**base, **commands}, name)

    def install_attaching(self, name: str = DRIVER, **commands: str) -> Path:
        """Install a driver with attach, mountdevice and mount; `commands` replace or add commands."""
        attached = json.dumps({"status": "Success", "device": "/dev/fake0"})
        base = {
            "init": says(OK),
            "attach": says(attached),
            "waitforattach": says(attached),
            "mountdevice": f'add "$2"; {says(OK)}',
            "mount": f'add "$2"; {says(OK)}',
            "unmount": f'drop "$2"; {says(OK)}',
            "unmountdevice": f'drop "$2"; {says(OK)}',
            "detach": says(OK),
        }
        return self.install({**base, **commands}, name)

    def calls(self) -> list[list[str]]:
        """Return the arguments of all calls but ``init``, split at spaces."""
        if not self.calls_file.exists():
            return []
        lines = [line.split(" ") for line in self.calls_file.read_text().split("\n") if line]
        return [line for line in lines if line[0] != "init"]

    def commands(self) -> list[str]:
        """Return the commands of all calls but ``init``, in order."""
        return [line[0] for line in self.calls()]

    def forget_calls(self) -> None:
        self.calls_file.unlink(missing_ok=True)

    def request(self, name: str = "data", **fields: Any) -> VolumeRequest:
        """Return a request; its target exists, as the agent makes it."""
        fields = {"source": "flexVolume", "driver": DRIVER, **fields}
        request = volume_request(self.directory / "root", name, **fields)
        Path(request.target).mkdir(parents=True, exist_ok=True)
        return request

    def global_directory(self, name: str, driver: str = DRIVER) -> Path:
        return self.host.plugins_directory / "kubernetes.io" / "flexvolume" / driver / "mounts" / name

    def journal(self) -> list[str]:
        """Return the volumes that the journal has entries of."""
        return [entry.volume for entry in self.entries.load().values.values()]

    def journal_text(self) -> str:
        return "\n".join(
            path.read_text() for path in sorted((self.host.state_directory / "volumes").iterdir())
        )

    def drivers(self) -> dict[str, FlexDriverStatus]:
        """Return the drivers by name, as the panel shows them: a moment old."""
        path = self.host.state_directory / FILE_NAME
        content = path.read_bytes() if path.exists() else b"[]"
        return {one.name: one for one in msgspec.json.decode(content, type=list[FlexDriverStatus])}

    def running(self) -> list[str]:
        """Return the records of programs that run."""
        return os.listdir(self.host.state_directory / "running")


def mode_of(path: Path) -> int:
    """Return the permission bits of a path."""
    return stat.S_IMODE(path.stat().st_mode)
