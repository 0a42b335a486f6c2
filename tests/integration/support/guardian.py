"""A guardian with simulated slots, for an agent with real pods."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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
