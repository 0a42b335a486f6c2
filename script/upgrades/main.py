"""Drives an emulated machine through upgrades that end in every way, and prints a table; see script/test-upgrade."""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from kubeletx_testing.lab.process import LabError

from .disks import SLOTS
from .machine import Machine

FAILURES: Final = {
    "panic": ("the kernel panics before user space", "Kernel"),
    "hang": ("the machine hangs; the i6300esb watchdog resets it", "HWWatchdog"),
    "lost": ("the controller is not reached", "Fallback"),
}
"""Behaviour of a new image → what happens in it, and the reason that the old image has to show."""
_BOOTED: Final = ("Booted: ", "UpgradeFailed: ")
_CUT_SECONDS: Final = 1.2
"""Power is cut up to this long after the first write of a commit begins; a tick takes a third of it."""


class Trial:
    """Upgrades of one machine. `running`: label of the committed image that runs."""

    def __init__(self, machine: Machine, chance: random.Random) -> None:
        self.machine, self._chance = machine, chance
        self.running = ""
        self._version = 0

    def first_boot(self) -> str:
        """Switch the machine on for the first time."""
        self.machine.switch_on()
        self._expect_boot("IMGA", "First")
        self.running = "IMGA"
        return "IMGA runs"

    def fails(self, behaviour: str) -> str:
        """Install an image that fails, and expect the old one to come back with the reason."""
        reason = FAILURES[behaviour][1]
        other = self._install(behaviour)
        self.machine.wait(f"kubeletx.slot={other}")
        if behaviour == "lost":
            self._expect_boot(other, "Update")
        self._expect_boot(self.running, reason)
        self.machine.order(f"ask install {other} --version {self._version}")
        refused = self.machine.wait("accepted: ", "refused: ", "deferred: ")
        if not refused.startswith("refused: "):
            raise LabError(f"the failed version is not refused: {refused}")
        return f"{self.running} came back: {reason}"

    def commits(self) -> str:
        """Install a good image, and expect that it is committed and boots again after a power cut."""
        label = self._install("good")
        self._expect_boot(label, "Update")
        self.machine.wait(f"UpgradeCommitted: {label} is active")
        self.running = label
        self.machine.cut_power()
        self.machine.switch_on()
        self._expect_boot(label, "PowerFail")
        return f"{label} is committed, and boots again after a power cut"

    def cut_in_commit(self) -> str:
        """Cut the power at a random moment of a commit, and expect one committed image that runs."""
        label = self._install("good")
        self.machine.wait(f"UpgradePassed: {label}")
        after = self._chance.choice((0.1, _CUT_SECONDS)) * self._chance.random()
        time.sleep(after)
        self.machine.cut_power()
        self.machine.switch_on()
        said = f"cut {after * 1000:.0f} ms after the start of the commit"
        ready = self.machine.wait("TRIAL ready ")
        booted = self.machine.wait(*_BOOTED)
        if "PowerFail: " not in booted:
            raise LabError(f"{said}: the reason is not PowerFail: {booted}")
        self.machine.order("show_slots")
        states = self.machine.wait("TRIAL slots ")
        current = ready.rpartition(" ")[2]
        other = {"IMGA": "IMGB", "IMGB": "IMGA"}[current]
        is_sound = f"{current}=active" in states and re.search(f"{other}=(unused|inprogress)", states)
        if not is_sound:
            raise LabError(f"{said}: {current} runs, but {states}")
        self.running = current
        return f"{said}; {states.removeprefix('TRIAL slots ')}, {current} runs"

    def _install(self, behaviour: str) -> str:
        self._version += 1
        label = {"IMGA": "IMGB", "IMGB": "IMGA"}[self.running]
        self.machine.order(f"install {label} {behaviour} {self._version}")
        answer = self.machine.wait("accepted: ", "refused: ", "deferred: ")
        if not answer.startswith("accepted: "):
            raise LabError(f"the installation was not accepted: {answer}")
        return label

    def _expect_boot(self, label: str, reason: str) -> None:
        """Wait for the next boot that the guardian sees: of this image, for this reason."""
        ready = self.machine.wait("TRIAL ready ")
        if not ready.endswith(label):
            raise LabError(f"{label} was expected, and {ready.rpartition(' ')[2]} runs")
        booted = self.machine.wait(*_BOOTED)
        if booted.startswith("Booted: Update") and reason not in {"Update", "Fallback"}:
            booted = self.machine.wait("UpgradeFailed: ")  # the image ended before its guardian ran
        if f"{reason}: " not in booted:
            raise LabError(f"the reason {reason} was expected: {booted}")


def main() -> int:
    """Try the loaders that the command line names; exit status 0 if all upgrades ended as they should, else 1."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the emulator ends with this process
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kubeletx-upgrade-") as scratch:
        base = options.keep or Path(scratch)
        held = [run(name, base / name, options, random.Random(seed)) for name in options.loader]
    return 0 if all(held) else 1


def run(loader: str, directory: Path, options: argparse.Namespace, chance: random.Random) -> bool:
    """Try one loader and print its rows; True if all upgrades ended as they should."""
    began = time.monotonic()
    try:
        machine = Machine(loader, directory)
    except LabError as err:
        print(f"{loader}: {err}", file=sys.stderr)
        return False
    trial = Trial(machine, chance)
    steps: list[tuple[str, Callable[[], str]]] = [("first boot", trial.first_boot)]
    steps += [
        (text, partial(trial.fails, behaviour))
        for behaviour, (text, _) in FAILURES.items()
        if behaviour in options.failure
    ]
    steps += [("good", trial.commits)]
    steps += [("good, and the power is cut", trial.cut_in_commit)] * options.cuts
    print(f"\n| {loader}: new image | outcome | s |\n|---|---|---|", flush=True)
    try:
        for text, step in steps:
            since = time.monotonic()
            print(f"| {text} | {step()} | {time.monotonic() - since:.0f} |", flush=True)
    except LabError as err:
        print(f"{loader}: BROKEN: {err}\nthe console: {directory / 'console.log'}", file=sys.stderr)
        return False
    finally:
        machine.cut_power()
    print(f"{loader}: {machine.boots} boots, {time.monotonic() - began:.0f} s", flush=True)
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/test-upgrade", description=__doc__)
    parser.add_argument("--loader", action="append", choices=list(SLOTS), help="one loader; may be repeated")
    parser.add_argument(
        "--failure", action="append", choices=[*FAILURES, "none"], help="of a new image; may be repeated"
    )
    parser.add_argument("--cuts", type=int, default=3, help="power cuts during commits, for each loader")
    parser.add_argument("--seed", type=int, help="repeat the moments of an earlier run")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="directory of disks and console logs, which stays"
    )
    options = parser.parse_args()
    options.loader = options.loader or list(SLOTS)
    options.failure = options.failure or list(FAILURES)
    return options


if __name__ == "__main__":
    sys.exit(main())
