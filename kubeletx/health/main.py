"""``kubeletx health``: runs the guardian, or, with a verb, asks and shows it. An entry point of its own, for a quick start."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .slots import Slots

EXIT_REBOOTED: Final = 75
EXIT_LATE: Final = 254
"""The machine is still there after it was asked to reboot."""
REPEAT_SECONDS: Final = 3600.0
MOST_LINES: Final = 1000
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?")


def duration(text: str) -> float:
    """Return the seconds of a duration such as 10s, 50ms or 1m."""
    match = DURATION.fullmatch(text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 10s or 50ms")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, None: 1}[match[2]]


def _formatter(prog: str) -> argparse.HelpFormatter:
    # The width of the terminal costs the import of shutil with all its archives.
    return argparse.HelpFormatter(prog, width=100)


class _QuickParser(argparse.ArgumentParser):
    def __init__(self, **keywords: Any) -> None:
        super().__init__(formatter_class=_formatter, **keywords)


def _parser() -> argparse.ArgumentParser:
    places = _QuickParser(add_help=False)
    places.add_argument("--run-dir", type=Path, default=Path("/run"), metavar="DIR", help="stands for /run")
    places.add_argument(
        "--persist-dir", type=Path, default=Path("/persist"), metavar="DIR", help="stands for /persist"
    )
    parser = _QuickParser(
        prog="kubeletx health",
        parents=[places],
        description="Run the guardian of this node, or ask the running one.",
    )
    parser.add_argument(
        "--slots",
        metavar="BACKEND",
        help="where OS images are: file:DIR (simulated), systemd-boot, grub, rauc; not supported yet: gpt:DEVICE; "
        "without it there is one image",
    )
    parser.add_argument(
        "--tick",
        type=duration,
        default=10.0,
        metavar="DURATION",
        help="real time of a tick, which always counts as 10 s (default 10s); shorter is fast motion",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file with items and sections")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        # SUPPRESS: a place before the verb counts unless it is given again behind it.
        verb = verbs.add_parser(name, help=text, description=text)
        for flag in ("--run-dir", "--persist-dir"):
            verb.add_argument(flag, type=Path, default=argparse.SUPPRESS, metavar="DIR")
        return verb

    from .commands import add_verbs

    add_verbs(add)
    return parser


def verbs() -> dict[str, str]:
    """Return the verbs, each with its line of help."""
    (parsers,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {choice.dest: choice.help or "" for choice in parsers._choices_actions}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    with _without_typing_extensions():
        import msgspec  # noqa: F401 # see there
    options = _parser().parse_args(arguments)
    if options.verb is not None:
        return int(options.command(options))
    return run(options)


@contextmanager
def _without_typing_extensions() -> Iterator[None]:
    """Let msgspec use typing, which has all that it needs: typing_extensions costs 20 ms and 3 MB of a guardian's start."""
    name = "typing_extensions"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # an import raises ImportError; see sys.modules
    try:
        yield
    finally:
        del sys.modules[name]


def _without_plugin_contract() -> None:
    """Let ``kubeletx.api.errors`` be imported without the rest of the room api: that costs 6 MB, and no plugin runs here."""
    from importlib.util import find_spec, module_from_spec

    spec = find_spec("kubeletx.api")
    if spec is not None and spec.name not in sys.modules:
        sys.modules[spec.name] = module_from_spec(spec)


def run(options: argparse.Namespace) -> int:
    """Run the guardian until SIGTERM (0), a simulated reboot (75), or an error in a flag (2)."""
    _without_plugin_contract()
    from kubeletx.linux.boot import boot_id

    from .config import HealthSettings, read_file
    from .devices.hardware import HardwareWatchdog
    from .guardian import OWN, Guardian
    from .loop import run_loop, showing_life
    from .machine import DryRunMachine, Rebooted, open_machine
    from .requests.ending import Exit
    from .slots import SlotsError
    from .slots.file import FileSlots

    report = Log()

    def complain(line: str) -> None:
        report("BadConfiguration", line)

    settings = read_file(options.config, complain) if options.config else HealthSettings()
    try:
        slots = _open_slots(options.slots, options.persist_dir, report) if options.slots else None
    except SlotsError as error:
        print(f"kubeletx health: {error}", file=sys.stderr)
        return 2
    machine = open_machine(settings.sections.get("backend", DryRunMachine.name), slots, report)
    try:
        boot = str(slots.boots()) if isinstance(slots, FileSlots) else boot_id()
    except (SlotsError, OSError) as error:
        report("BootUnknown", f"{error}; this start counts as a boot")
        boot = str(time.time_ns())
    code = _lock(options.run_dir / OWN)
    if code:
        return code
    hardware = HardwareWatchdog(
        settings.sections.get("watchdog", {}), options.tick, lambda line: report("BadWatchdog", line)
    )

    def show_life() -> None:
        hardware.feed()
        if "NOTIFY_SOCKET" in os.environ:
            from kubeletx.linux.notify import notify

            notify("READY=1\nWATCHDOG=1")

    with showing_life(show_life, options.tick):
        if machine.name != "simulated":
            hardware.keep_boot_status(options.persist_dir)
        guardian = Guardian(
            options.run_dir,
            options.persist_dir,
            slots,
            machine,
            settings,
            boot=boot,
            report=report,
            report_event=report.event,
        )
    try:
        run_loop(guardian, options.tick, show_life)
        code = 0
    except Rebooted:
        code = EXIT_REBOOTED
    except Exit as error:
        report("Exit", str(error))
        code = EXIT_LATE if machine.name != DryRunMachine.name else 1
    if code != EXIT_LATE:  # without close, the hardware resets the machine
        hardware.close()
    return code


def _lock(own: Path) -> int:
    """Lock the guardian's directory until the process ends; returns an exit code, 0: it is locked."""
    from kubeletx.linux.locks import LockHeld, take_lock

    try:
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        take_lock(own / "lock")
    except LockHeld as error:
        print(f"kubeletx health: another guardian runs: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"kubeletx health: --run-dir: {own}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _open_slots(text: str, persist: Path, report: Callable[[str, str], object]) -> Slots:
    """Open the slots; all but simulated ones may block, and get a thread of their own."""
    from .slots import open_slots

    slots = open_slots(text, persist)
    if slots.abilities.is_simulated:
        return slots
    if not slots.abilities.proof:
        report("SlotsUnproven", f"--slots {text}: not supported yet: no test has met its boot loader")
    from .slots.polled import PolledSlots

    return PolledSlots(slots, lambda line: report("SlotsUnwritable", line))


class Log:
    """Log on standard error. What is wrong is found again at each tick, so its line is printed once an hour."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._write = write or partial(print, file=sys.stderr, flush=True)
        self._printed: dict[str, float] = {}

    def __call__(self, reason: str, message: str) -> None:
        line, now = f"{reason}: {message}", time.monotonic()
        if now - self._printed.get(line, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        if len(self._printed) >= MOST_LINES:
            self._printed.clear()
        self._printed[line] = now
        self.event(reason, message)

    def event(self, reason: str, message: str) -> None:
        """Log something that has happened, however often it happens."""
        self._write(f"{reason}: {message}")
