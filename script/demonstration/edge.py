"""The demo's OS upgrade on simulated slots: one that falls back, since no controller is reached, and one that commits.

It needs no root and no daemon: ``script/demo --edge`` shows it alone. A tick of the guardian counts as 10 s and takes 0.1 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kubeletx.health.config import ITEMS
from kubeletx.health.main import EXIT_REBOOTED
from kubeletx.health.model import Reach
from kubeletx.health.slots.slots import LABELS
from kubeletx.health.topics import HEALTH_STATUS, ZBOOT_STATUS, HealthStatus, ZbootStatus, find, path_of
from kubeletx_testing.lab import LabError

from .progress import live_picture

TICK = "100ms"
LOOK_SECONDS = 0.1
LIMIT_SECONDS = 120
"""Most seconds of one upgrade, on a busy machine."""
WINDOW_SECONDS = int(ITEMS["timer.test.baseimage.update"].default)


class EdgeNode:
    """A simulated node: its directory, and the guardian's process, which is started again after each reboot."""

    def __init__(self, directory: Path, tick: str) -> None:
        self._tick = tick
        self.run, self.slots = directory / "run", directory / "slots"
        self._places = ["--run-dir", str(self.run), "--persist-dir", str(directory / "persist")]
        self._guardian: subprocess.Popen[bytes] | None = None
        self.is_reached = False
        """The controller's agent says "success" at each look."""
        self.story: list[str] = []
        """Orders and reboots so far."""
        self._reboots = 0

    def look(self) -> None:
        """Boot the node if it is off, and publish the controller's word. Raises LabError if the guardian fails."""
        code = self._guardian.poll() if self._guardian else EXIT_REBOOTED
        if code == EXIT_REBOOTED:
            flags = ["--slots", f"file:{self.slots}", "--tick", self._tick]
            self._guardian = subprocess.Popen(
                self._argv(*flags),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        elif code is not None:
            raise LabError(f"the guardian ended with exit code {code}")
        for reboot in self.reboots()[self._reboots :]:
            self._reboots += 1
            self.story.append(f"reboot into {reboot['label']} ({reboot['bootReason']}): {reboot['reason']}")
        if self.is_reached:
            topic = self.run / "zedagent" / "ZedAgentStatus"
            topic.mkdir(parents=True, exist_ok=True)
            (topic / ".new").write_text(json.dumps({"ConfigGetStatus": Reach.SUCCESS}))
            (topic / ".new").replace(topic / "zedagent.json")

    def order(self, *words: str) -> None:
        """Give an order by command. Raises LabError if it is refused."""
        done = subprocess.run(
            self._argv(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        if done.returncode != 0:
            raise LabError(f"kubeletx health {words[0]}: {(done.stdout + done.stderr).strip()}")
        self.story.append(f"kubeletx health {' '.join(words)}: {done.stdout.strip()}")

    def status(self) -> HealthStatus | None:
        return find(HealthStatus, path_of(self.run, HEALTH_STATUS, "nodeagent"))

    def images(self) -> list[ZbootStatus]:
        found = (find(ZbootStatus, path_of(self.run, ZBOOT_STATUS, label)) for label in LABELS)
        return [image for image in found if image is not None]

    def reboots(self) -> list[dict[str, str]]:
        path = self.slots / "reboots"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def stop(self) -> None:
        if self._guardian is not None:
            self._guardian.terminate()
            self._guardian.wait()

    def _argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "kubeletx.health", *words, *self._places]


def show_upgrades(console: Console, tick: str = TICK) -> None:
    """Play both upgrades, as a live picture on a terminal. Raises LabError if one does not end as it should."""
    with tempfile.TemporaryDirectory(prefix="kubeletx-edge-") as directory:
        node = EdgeNode(Path(directory), tick)
        try:
            _play(console, node)
        finally:
            node.stop()


def _play(console: Console, node: EdgeNode) -> None:
    with live_picture(console, lambda: picture(node)) as show:

        def until(is_so: Callable[[], bool]) -> None:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not is_so():
                if time.monotonic() > deadline:
                    raise LabError(f"not within {LIMIT_SECONDS} s: {(node.story or ['the first tick'])[-1]}")
                node.look()
                show()
                time.sleep(LOOK_SECONDS)

        until(lambda: len(node.images()) == len(LABELS))
        (node.slots / "IMGB.version").write_text("2\n")
        node.story.append("version 2 is written into IMGB; no controller is reached")
        node.order("install", "IMGB")
        until(lambda: [reboot["bootReason"] for reboot in node.reboots()] == ["Update", "Fallback"])
        until(lambda: any(image.current_partition for image in node.images()[:1]))
        node.is_reached = True
        node.story.append("the controller is reached again")
        node.order("retry", "IMGB")
        until(lambda: _states(node) == ["unused", "active"])
        node.story.append("IMGB is committed")
        show()


def _states(node: EdgeNode) -> list[str]:
    return [image.partition_state for image in node.images()]


def picture(node: EdgeNode) -> RenderableType:
    """Draw the slots, the test window, and what has happened."""
    slots = Table(title="OS images", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("SLOT", "VERSION", "STATE", ""):
        slots.add_column(heading)
    colours = {"active": "green", "inprogress": "yellow", "updating": "cyan"}
    for image in node.images():
        colour = colours.get(image.partition_state, "dim")
        slots.add_row(
            image.partition_label,
            image.short_version,
            f"[{colour}]{image.partition_state}[/]",
            "◄ runs" if image.current_partition else "",
        )
    status = node.status() or HealthStatus()
    state = Table.grid(padding=(0, 2, 0, 0))
    left = status.remaining_test_time
    done = WINDOW_SECONDS - left if left else 0
    state.add_row("phase", f"{status.phase} {status.held_by and f'(held: {status.held_by})'}")
    state.add_row("test window", ProgressBar(total=WINDOW_SECONDS, completed=done, width=40))
    state.add_row(
        "controller", f"not reached for {status.silent_seconds} s" if status.silent_seconds else "reached"
    )
    state.add_row("boot ends", status.operation or "no")
    return Group(slots, state, *map(Text, node.story), "")


def main() -> int:
    """Show the scene alone; exit status 0 if all was well."""
    console = Console()
    try:
        show_upgrades(console)
    except LabError as error:
        console.print(f"[bold red]failed:[/] {error}", highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
