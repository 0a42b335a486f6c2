"""Signs of life for the guardian, from any Python program; it imports nothing of the guardian.

    from kubeletx.health.client import release, stack_on_signal, touch

    stack_on_signal("camera")    # once: after a hit the guardian stores the stack of all threads
    touch("camera")              # from the main loop, every 25 s: registers, and shows that the loop turns
    release("camera")            # at a planned end: it is not watched any more

From a shell, every 25 s::

    mkdir -p /run/watchdog/file && touch /run/camera.touch /run/watchdog/file/camera.touch

`run`, where it is given, stands for ``/run`` as in ``kubeletx health --run-dir``. All functions raise OSError.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path
from typing import Final

RUN: Final = Path("/run")


def touch(name: str, run: Path = RUN) -> None:
    """Register the agent if it is not registered, and give a sign of life.

    Without one for 300 s (section ``watchdog.agents``), its unit is restarted or the node is rebooted.
    """
    _touch(run / f"{name}.touch")
    _touch(_registration(name, run))


def touch_registered(name: str, run: Path = RUN) -> None:
    """Give a sign of life if the agent is registered, as one that was killed still is while it starts again."""
    if _registration(name, run).exists():
        _touch(run / f"{name}.touch")


def release(name: str, run: Path = RUN) -> None:
    """End the registration of the agent; without one nothing happens."""
    _registration(name, run).unlink(missing_ok=True)


def stack_on_signal(name: str, run: Path = RUN) -> None:
    """Let SIGUSR1 write the stacks of all threads to RUN/NAME.stack, also while the program hangs, and write RUN/NAME.pid.

    To be called by the main thread.
    """
    run.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    # It stays open: the handler only writes.
    descriptor = os.open(run / f"{name}.stack", flags, 0o600)
    faulthandler.register(signal.SIGUSR1, descriptor, all_threads=True)
    (run / f"{name}.pid").write_text(f"{os.getpid()}\n")


def _registration(name: str, run: Path) -> Path:
    return run / "watchdog" / "file" / f"{name}.touch"


def _touch(path: Path) -> None:
    try:
        path.touch()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
