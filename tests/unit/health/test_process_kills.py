"""The real program under SIGKILL: fast motion, a publisher, and orders by the command line."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

PROGRAM = (sys.executable, "-m", "kubeletx.health")
KILLS = 6
LIMIT_SECONDS = 60.0
"""For a busy machine; the upgrade takes 2 s."""


def _start(base: Path) -> subprocess.Popen[str]:
    arguments = (
        "--run-dir",
        base / "run",
        "--persist-dir",
        base / "persist",
        "--slots",
        f"file:{base / 'slots'}",
    )
    config = ("--config", base / "config.yaml", "--tick", "5ms")
    with (base / "log").open("a") as log:
        return subprocess.Popen([*PROGRAM, *map(str, (*arguments, *config))], stderr=log, text=True)


@contextmanager
def _publisher(run: Path) -> Iterator[None]:
    over = Event()

    def publish() -> None:
        path = run / "zedagent" / "ZedAgentStatus" / "zedagent.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(".new")
        while not over.wait(0.01):
            new.write_text('{"ConfigGetStatus": 1}')
            new.replace(path)

    thread = Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _states(slots: Path) -> tuple[str, ...]:
    return tuple((slots / name).read_text().strip() for name in ("IMGA.state", "IMGB.state", "current"))


def test_an_upgrade_survives_a_loop_of_sigkill(memory_path: Path) -> None:
    base, chance = memory_path, random.Random(26)
    slots = base / "slots"
    # Hours without a contact: a guardian that a busy machine stops for a second has missed no tick, the publisher may have.
    items = {
        "timer.test.baseimage.update": 600,
        "timer.update.fallback.no.network": 100_000,
        "contact.fresh.limit": 100_000,
    }
    (base / "config.yaml").write_text(json.dumps(items))
    process = _start(base)
    try:
        with _publisher(base / "run"):
            order = [*PROGRAM, "install", "IMGB", "--run-dir", str(base / "run")]
            while not (slots / "current").exists() or not (base / "run/nodeagent/NodeAgentStatus").exists():
                with suppress(subprocess.TimeoutExpired):
                    raise AssertionError(f"it ends with {process.wait(timeout=0.02)}")
            answer = subprocess.run(order, timeout=LIMIT_SECONDS, capture_output=True, text=True, check=False)
            assert answer.returncode == 0, answer.stderr
            kills, end = 0, time.monotonic() + LIMIT_SECONDS
            while _states(slots) != ("unused", "active", "IMGB"):
                assert time.monotonic() < end, (_states(slots), (base / "log").read_text())
                try:
                    # The interpreter starts in some 0.1 s: short and long lives.
                    life = chance.uniform(0.05, 0.4) if kills < KILLS else 0.2
                    assert process.wait(timeout=life) == 75, (base / "log").read_text()
                except subprocess.TimeoutExpired:
                    if kills == KILLS:
                        continue
                    process.kill()
                    process.wait()
                    kills += 1
                process = _start(base)
            status = [*PROGRAM, "status", "-o", "json", "--run-dir", str(base / "run")]
            shown = json.loads(
                subprocess.run(status, timeout=LIMIT_SECONDS, capture_output=True, check=True).stdout
            )
    finally:
        process.kill()
        process.wait()
    reboots = [json.loads(line) for line in (slots / "reboots").read_text().splitlines()]
    assert [line["label"] for line in reboots] == ["IMGB"]
    assert reboots[0]["bootReason"] == "Update"
    assert shown["CurPart"] == "IMGB"
