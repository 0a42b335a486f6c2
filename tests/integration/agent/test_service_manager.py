"""The agent as systemd starts it, with Type=notify and a watchdog."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from kubeletx_testing.lab.cgroups import remove_cgroups

GUARD_SECONDS = 60


def test_systemd_hears_of_start_life_and_end(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(GUARD_SECONDS)
        agent = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("kubeletx")),
                f"--root-dir={tmp_path / 'root'}",
                f"--pod-logs-dir={tmp_path / 'logs'}",
                f"--container-runtime-endpoint=container:absent:unix://{tmp_path}/absent.sock",
                f"--cgroup-root=/kubeletx-notify-{os.getpid()}",
                "--healthz-port=0",
            ],
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert ear.recv(300).startswith(b"READY=1\n")
            assert [ear.recv(300) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            agent.send_signal(signal.SIGTERM)
            heard = ear.recv(300)
            while heard == b"WATCHDOG=1":
                heard = ear.recv(300)
            assert heard.startswith(b"STOPPING=1\n")
            assert agent.wait(GUARD_SECONDS) == 0
        finally:
            agent.kill()
            agent.wait()
            remove_cgroups(f"kubeletx-notify-{os.getpid()}")
