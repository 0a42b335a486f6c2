"""A private D-Bus daemon with a test double of systemd-logind on it.

Tests use it to check what the agent does at a shutdown of the host.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

from .tools import get_tool

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
"""


class PrivateLogind:
    """A private bus with a test double of systemd-logind (see `logind_double`), as a context manager.

    `address`: value for DBUS_SYSTEM_BUS_ADDRESS. `conf_dir`: directory of logind's drop-in files.
    """

    def __init__(self, directory: Path) -> None:
        """Start the bus and the double, and wait until the double is ready.

        `directory`: for their files.
        """
        self.conf_dir = directory / "logind.conf.d"
        self.conf_dir.mkdir()
        self.address = f"unix:path={directory}/bus"
        config = directory / "bus.conf"
        config.write_text(CONFIG.format(path=directory / "bus"))
        self.bus = subprocess.Popen(
            [get_tool("dbus-daemon"), f"--config-file={config}", "--nofork", "--print-address"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.bus.stdout is not None
        assert "unix:" in self.bus.stdout.readline()
        self.logind = subprocess.Popen(
            [sys.executable, "-m", "kubeletx_testing.lab.logind_double", str(self.conf_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"DBUS_SYSTEM_BUS_ADDRESS": self.address, "PYTHONPATH": ":".join(sys.path)},
            start_new_session=True,
        )
        self.said("ready")

    def tell(self, command: str) -> None:
        """Send a command to the double: begin, cancel or wait; see `logind_double`."""
        pipe: IO[str] | None = self.logind.stdin
        assert pipe is not None
        pipe.write(f"{command}\n")
        pipe.flush()

    def said(self, text: str) -> None:
        """Wait for the next line that the double prints, and assert that it is `text`."""
        assert self.logind.stdout is not None
        line = self.logind.stdout.readline().strip()
        assert line == text, line

    def __enter__(self) -> PrivateLogind:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the double and the bus."""
        for process in (self.logind, self.bus):
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
