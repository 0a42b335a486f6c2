"""A test double of systemd-logind on a private bus, as a program.

Run it as `python -m kubeletx_testing.lab.logind_double DIRECTORY` with DBUS_SYSTEM_BUS_ADDRESS set. Commands
on standard input:

    begin, cancel    send PrepareForShutdown with true or false
    wait             prints "released" once all locks are released

At its start it prints "ready", and for each lock that is taken "locked WHAT WHO MODE". As in logind, a lock
is the writing end of a pipe; the double holds the other end and detects when the lock is closed. On SIGHUP
through KillUnit it reads the drop-in files in DIRECTORY again. Source: org.freedesktop.login1(5).
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from typing import Any

from jeepney import (
    DBusAddress,
    HeaderFields,
    MessageType,
    message_bus,
    new_method_return,
    new_signal,
)
from jeepney.io.blocking import DBusConnection, open_dbus_connection
from jeepney.wrappers import unwrap_msg

MANAGER = "org.freedesktop.login1.Manager"
PATH = "/org/freedesktop/login1"


class Double:
    """D-Bus connection and state of the double.

    `conf_dir`: directory of drop-in files. `delay_seconds`: InhibitDelayMaxSec. `is_preparing`: a shutdown is
    being prepared. `locks`: reading ends of the pipes of all locks.
    """

    def __init__(self, conf_dir: Path) -> None:
        self.conf_dir = conf_dir
        self.delay_seconds = 5
        self.is_preparing = False
        self.locks: list[int] = []
        self.bus: DBusConnection = open_dbus_connection(bus="SYSTEM", enable_fds=True)
        for name in ("org.freedesktop.login1", "org.freedesktop.systemd1"):
            unwrap_msg(self.bus.send_and_get_reply(message_bus.RequestName(name)))

    def answer(self, call: Any) -> None:
        """Answer one method call that arrived on the bus."""
        match call.header.fields.get(HeaderFields.member):
            case "Inhibit":
                reading, writing = os.pipe()
                self.locks.append(reading)
                what, who, _, mode = call.body
                self.bus.send(new_method_return(call, "h", (writing,)))
                os.close(writing)
                say(f"locked {what} {who} {mode}")
            case "Get":
                value = {
                    "InhibitDelayMaxUSec": ("t", self.delay_seconds * 1_000_000),
                    "PreparingForShutdown": ("b", self.is_preparing),
                }[call.body[1]]
                self.bus.send(new_method_return(call, "v", (value,)))
            case "KillUnit":
                for path in sorted(self.conf_dir.glob("*.conf")):
                    for line in path.read_text().splitlines():
                        if line.startswith("InhibitDelayMaxSec="):
                            self.delay_seconds = int(line.partition("=")[2])
                self.bus.send(new_method_return(call))

    def obey(self, command: str) -> None:
        """Execute a command, which is one line of standard input."""
        if command == "wait":
            while self.locks:
                lock = self.locks.pop()
                os.read(lock, 1)  # returns when the lock is closed
                os.close(lock)
            say("released")
            return
        self.is_preparing = command == "begin"
        emitter = DBusAddress(PATH, interface=MANAGER)
        self.bus.send(new_signal(emitter, "PrepareForShutdown", "b", (self.is_preparing,)))

    def listen(self) -> None:
        """Answer all calls that have arrived.

        One read of the socket may bring several calls, which `select` reports only once.
        """
        while True:
            try:
                message = self.bus.receive(timeout=0)
            except TimeoutError:
                return
            if message.header.message_type is MessageType.method_call:
                self.answer(message)

    def run(self) -> None:
        """Answer calls and execute commands until standard input ends."""
        say("ready")
        while True:
            self.listen()
            ready, _, _ = select.select([self.bus.sock, sys.stdin], [], [])
            if sys.stdin in ready:
                data = os.read(sys.stdin.fileno(), 4096)
                if not data:
                    return
                for line in data.decode().splitlines():
                    self.obey(line)


def say(text: str) -> None:
    """Print one line to standard output and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Double(Path(sys.argv[1])).run()
