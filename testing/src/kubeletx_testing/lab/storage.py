"""A storage agent of kubeletx-flexvolume as a child process, for the pods of a `PrivateAgent`.

It is started by its command line, as systemd does, in the mount namespace of the agent. Several of them may share a pool of
images and a file of attachment records: they are then the storage of several nodes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .agent import PrivateAgent
from .disk import loop_devices
from .mounts import list_mounts
from .process import Daemon, LabError, run_to_end
from .tools import daemon_environment

DRIVER: Final = "kubeletx.io/storage"
"""Name of the driver that the storage agent installs."""


class PrivateStorageAgent:
    """Storage agent for one agent of kubeletx, whose name of the node it uses."""

    def __init__(
        self, agent: PrivateAgent, *, pool: Path, records: Path, plugins: Path | None = None
    ) -> None:
        """`pool`: directory of the images; made if missing. `records`: SQLite file of the attachment records.

        `plugins`: directory into which the driver is installed; None: that of the agent.
        """
        self.agent = agent
        self.pool = pool
        self.records = records
        self.plugins = plugins or agent.volume_plugin_dir
        self.state_dir = agent.lab.base_dir / f"{agent.root_dir.name}-storage"
        self.daemon = Daemon(
            name=f"{agent.root_dir.name}-storage-agent",
            argv=[
                str(_program()),
                "agent",
                "--no-known-plugin-dirs",
                f"--state-dir={self.state_dir}",
                f"--volume-plugin-dir={self.plugins}",
                f"--kubelet-root-dir={agent.root_dir}",
                f"--pool=default={pool}",
                f"--records={records}",
                f"--node-name={agent.node_name}",
            ],
            directory=agent.lab.base_dir,
            env=daemon_environment(),
        )

    def start(self, *, timeout_seconds: float = 120) -> None:
        """Start the process and wait until it has installed its driver, and serves it."""
        self.pool.mkdir(parents=True, exist_ok=True)
        self.agent.root_dir.mkdir(parents=True, exist_ok=True)
        self.daemon.start()
        self.daemon.wait_until(self._is_serving, what="serve its driver", timeout_seconds=timeout_seconds)

    def stop(self) -> None:
        """End the process; volumes stay as they are."""
        self.daemon.stop(grace_seconds=20)

    def kill(self) -> None:
        """Kill the process, to simulate a crash."""
        self.daemon.kill()

    def cli(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ``kubeletx-flexvolume`` about this agent."""
        place = {"status": f"--state-dir={self.state_dir}", "attachments": f"--records={self.records}"}
        argv: Sequence[str] = [str(_program()), command, place[command], *arguments]
        return run_to_end(*argv, env=daemon_environment(), timeout_seconds=60)

    def _is_serving(self) -> bool:
        driver = self.plugins / DRIVER.replace("/", "~") / DRIVER.rpartition("/")[2]
        return driver.exists() and run_to_end(driver, "init").returncode == 0

    def devices(self) -> list[str]:
        """Return the loop devices of images of the pool; another agent may have attached them."""
        return loop_devices(self.pool)

    def leftovers(self) -> list[str]:
        """Return mounts of volumes, devices of the pool and journals of volumes that are left."""
        mounts = [path for path in list_mounts(self.agent.root_dir) if "kubeletx.io" in path]
        journals = [str(path) for path in (self.state_dir / "volumes").glob("*.json")]
        return [*mounts, *self.devices(), *journals]


def _program() -> Path:
    program = Path(sys.executable).with_name("kubeletx-flexvolume")
    if not program.exists():
        raise LabError(f"{program} is missing; run script/setup")
    return program
