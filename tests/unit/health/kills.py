"""Kills of a guardian between any two of its changes of files: an audit hook of Python refuses the change and all later ones.

Source: https://docs.python.org/3/library/audit_events.html
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import msgspec

from kubeletx.health.model import Order
from kubeletx.health.outbox import new_id

from .trial import Trial

_CHANGES: Final = frozenset({"open", "os.link", "os.rename", "os.remove", "os.mkdir"})
_OTHER_AGENT: Final = "/zedagent/"


class Killed(BaseException):
    """The process has ended, as by SIGKILL."""


class Killer:
    """`left`: changes of files below `directory` until the kill; None: no kill. `changes`: changes so far."""

    def __init__(self) -> None:
        self.directory = ""
        self.left: int | None = None
        self.changes = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _CHANGES or not self.directory:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE):
            return
        path = str(arguments[0])
        if not path.startswith(self.directory) or _OTHER_AGENT in path:
            return
        self.changes += 1
        if self.left is not None:
            if self.left <= 0:
                raise Killed
            self.left -= 1


KILLER: Final = Killer()
"""A hook cannot be removed, so there is one."""


class KillTrial(Trial):
    """A node whose guardian is killed at a given change of a file, and started again."""

    def start(self) -> None:
        KILLER.left = None
        KILLER.directory = ""
        super().start()

    def start_killed_at(self, change: int) -> bool:
        """Start the guardian and kill it instead of its change of this number; False: it has started before."""
        KILLER.directory, KILLER.left = str(self.base), change
        try:
            super().start()
        except Killed:
            return True
        finally:
            KILLER.directory, KILLER.left = "", None
        return False

    def kill_at(self, change: int) -> None:
        """Kill the guardian instead of its change of this number from here on."""
        KILLER.left = change

    def tick(self, seconds: int = 10) -> None:
        for _ in range(seconds // 10):
            KILLER.directory = str(self.base)
            try:
                super().tick()
            except Killed:
                self.start()
            finally:
                KILLER.directory = ""

    def send(self, verb: str, label: str) -> None:
        """Send an order to a guardian that may be killed while it carries it out."""
        order = Order(id=new_id(), verb=verb, label=label)
        path = self.run / "kubeletx-health" / "orders" / f"{order.id}.json"
        path.write_bytes(msgspec.json.encode(order))
        KILLER.directory = str(self.base)
        try:
            self.guardian.hurry()
        except Killed:
            self.start()
        finally:
            KILLER.directory = ""
