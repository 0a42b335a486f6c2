"""A guardian with simulated slots, for an agent with real pods."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kubeletx_testing.waiting import block_until

REBOOTED = 75


class LabGuardian:
    """A guardian whose ticks take 500 ms, so that it waits at most 15 s for the end of pods."""

    def __init__(self, directory: Path) -> None:
        self.run = directory / "run"
        self.slots = directory / "slots"
        self._places = (f"--run-dir={self.run}", f"--persist-dir={directory / 'persist'}")
        self._command = (sys.executable, "-m", "kubeletx.health", *self._places)
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            [*self._command, f"--slots=file:{self.slots}", "--tick=500ms"], stdin=subprocess.DEVNULL
        )
        return self.process

    def order(self, *words: str) -> None:
        subprocess.run([*self._command, *words], check=True, capture_output=True, timeout=60)

    @property
    def status(self) -> dict[str, Any]:
        path = self.run / "nodeagent" / "NodeAgentStatus" / "nodeagent.json"
        return json.loads(path.read_bytes()) if path.exists() else {}

    @property
    def agent(self) -> dict[str, Any]:
        """Topic of the agent; empty before it is published."""
        path = self.run / "kubeletx" / "KubeletxStatus" / "kubeletx.json"
        return json.loads(path.read_bytes()) if path.exists() else {}

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)


class SlotsGuardian:
    """A guardian with slots of a real backend, on a machine whose boots are only told to it, in fast motion.

    A mount namespace shows it another boot ID and command line of the kernel. Its backend for reboots only logs.
    """

    def __init__(self, directory: Path, slots: str) -> None:
        self._base, self._slots = directory, slots
        self.persist, self.log = directory / "persist", directory / "guardian.log"
        self._boots = 0
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "config.yaml").write_text(
            "timer.test.baseimage.update: 30\ntimer.update.fallback.no.network: 60\n"
        )

    @property
    def _run(self) -> Path:
        return self._base / f"run-{self._boots}"

    def boot(self, command_line: str = "quiet") -> None:
        """Start the guardian as after a boot."""
        self.end()
        self._boots += 1
        (self._base / "boot_id").write_text(f"{self._boots}\n")
        (self._base / "cmdline").write_text(f"{command_line}\n")
        shows = f"mount --bind {self._base}/boot_id /proc/sys/kernel/random/boot_id && "
        shows += f'mount --bind {self._base}/cmdline /proc/cmdline && exec "$@"'
        arguments = [f"--run-dir={self._run}", f"--persist-dir={self.persist}", f"--slots={self._slots}"]
        arguments += ["--tick=20ms", f"--config={self._base}/config.yaml"]
        guardian = [sys.executable, "-m", "kubeletx.health", *arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", shows, "sh", *guardian],
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def order(self, *words: str) -> None:
        argv = [sys.executable, "-m", "kubeletx.health", f"--run-dir={self._run}", *words]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)

    def wait(self, text: str) -> None:
        """Wait for a line of the log, while the controller is reached."""
        topic = self._run / "zedagent" / "ZedAgentStatus" / "zedagent.json"
        topic.parent.mkdir(parents=True, exist_ok=True)

        def is_logged() -> bool:
            topic.with_name(".new").write_text('{"ConfigGetStatus": 1}')
            topic.with_name(".new").replace(topic)
            return text in self.log.read_text()

        block_until(is_logged)

    @property
    def states(self) -> tuple[str, ...]:
        """Published states of both slots."""
        paths = [self._run / "baseosmgr" / "ZbootStatus" / f"{label}.json" for label in ("IMGA", "IMGB")]
        return tuple(json.loads(path.read_bytes())["PartitionState"] for path in paths if path.exists())

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
