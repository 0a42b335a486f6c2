"""Drives emulated machines through upgrades that end in every way, and prints a table; see script/test-upgrade."""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final

from kubeletx_testing.lab.machine_parts import Kernel, kernel_package
from kubeletx_testing.lab.process import LabError

from .disks import LOADERS
from .machine import Machine
from .root import make_root

CASES: Final = {
    "panic": ("the kernel panics before user space", "Kernel"),
    "hang": ("the machine hangs; the i6300esb watchdog resets it", "HWWatchdog"),
    "lost": ("the controller is not reached", "Fallback"),
    "good": ("good, and the power is cut after the commit", "PowerFail"),
    "cuts": ("good, and the power is cut during the commit", "PowerFail"),
}
"""Case → what happens to a new image, and the reason of the last boot. The first three name behaviours of images."""
PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"
_BEGIN: Final = "<!-- upgrades -->\n"
_END: Final = "<!-- end of upgrades -->\n"
_OTHER: Final = {"IMGA": "IMGB", "IMGB": "IMGA"}
_CUTS: Final = 10
_Rows = dict[str, tuple[str, float]]  # case → outcome and seconds


class Trial:
    """Upgrades of one machine. `running`: label of the committed image that runs."""

    def __init__(self, loader: str, machine: Machine, options: argparse.Namespace) -> None:
        self.loader, self.machine, self.cases, self._cuts = loader, machine, options.case, options.cuts
        self._chance = random.Random(f"{options.seed} {loader}")
        self.running = "IMGA"
        self._version = 0
        self._commit_seconds = 1.2

    def run(self, case: str) -> str:
        """Run a case and return its outcome. Raises LabError if it is another one than expected."""
        steps = {"good": self._commit, "cuts": self._cut_commits}
        return steps.get(case, partial(self._fail, case, CASES[case][1]))()

    def _fail(self, behaviour: str, reason: str) -> str:
        """Install an image that fails, and expect the old one to come back with the reason."""
        other = self._install(behaviour)
        self.machine.wait(f"kubeletx.slot={other}")
        if behaviour == "lost":
            self.expect_boot(other, "Update")
        self.expect_boot(self.running, reason)
        self._ask(f"ask install {other} --version {self._version}", "refused: ")
        return f"old image, {reason}"

    def _commit(self) -> str:
        """Install a good image, and expect that it is committed and boots again after a power cut."""
        label = self._install("good")
        self.expect_boot(label, "Update")
        self.machine.wait(f"UpgradePassed: {label}")
        since = time.monotonic()
        self.machine.wait(f"UpgradeCommitted: {label} is active")
        self._commit_seconds = time.monotonic() - since
        self.running = label
        self.machine.cut_power()
        self.machine.switch_on()
        self.expect_boot(label, "PowerFail")
        return "new image, PowerFail"

    def _cut_commits(self) -> str:
        """Cut the power at random moments of the same commit, and expect each time one committed image that runs."""
        label = self._install("good")
        self.expect_boot(label, "Update")
        self.machine.save()
        ran = []
        for number in range(self._cuts):
            if number:
                self.machine.cut_power()
                self.machine.go_back()
            self.machine.wait(f"UpgradePassed: {label}")
            # One moment in each part of the commit as it took in case "good", and a bit after it.
            after = (number + self._chance.random()) / self._cuts * self._commit_seconds * 1.1
            time.sleep(after)
            self.machine.cut_power()
            self.machine.switch_on()
            current = self.machine.wait("TRIAL ready ").rpartition(" ")[2]
            booted = self.machine.wait("Booted: ", "UpgradeFailed: ")
            self.machine.order("show_slots")
            states = self.machine.wait("TRIAL slots ")
            sound = f"(?=.*{current}=active).*{_OTHER[current]}=(unused|inprogress)"
            if not re.match(sound, states) or "PowerFail: " not in booted:
                raise LabError(
                    f"power cut {after:.3f} s after the verdict: {current} runs; {booted}; {states}"
                )
            ran.append(f"{after * 1000:.0f} ms {'new' if current == label else 'old'}")
        return f"PowerFail; time after the verdict and image that runs: {', '.join(ran)}"

    def _install(self, behaviour: str) -> str:
        """Install another image and return its label."""
        self._version += 1
        label = _OTHER[self.running]
        self._ask(f"install {label} {behaviour} {self._version}", "accepted: ")
        return label

    def _ask(self, line: str, expected: str) -> None:
        self.machine.order(line)
        answer = self.machine.wait("accepted: ", "refused: ", "deferred: ")
        if not answer.startswith(expected):
            raise LabError(f"{line}: {expected}was expected: {answer}")

    def expect_boot(self, label: str, reason: str) -> None:
        """Wait for the next boot that the guardian sees: of this image, for this reason."""
        ready = self.machine.wait("TRIAL ready ")
        booted = self.machine.wait("Booted: ", "UpgradeFailed: ")
        if booted.startswith("Booted: Update") and reason not in {"Update", "Fallback"}:
            booted = self.machine.wait("UpgradeFailed: ")  # the image ended before its guardian ran
        if not ready.endswith(label) or f"{reason}: " not in booted:
            raise LabError(f"{label} and the reason {reason} were expected: {ready}, {booted}")


def main() -> int:
    """Try the loaders that the command line names; exit status 0 if all upgrades ended as they should, else 1."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the emulators end with this process
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kubeletx-upgrade-") as scratch:
        base = options.keep or Path(scratch)
        base.mkdir(parents=True, exist_ok=options.keep is None)
        make_root(base / "root.img")
        trials = [
            Trial(name, Machine(name, base / name, base / "root.img"), options) for name in options.loader
        ]
        with ThreadPoolExecutor(len(trials)) as pool:
            try:
                rows = dict(zip(options.loader, pool.map(run, trials), strict=True))
            finally:
                for trial in trials:
                    trial.machine.end()
    boots = sum(trial.machine.boots for trial in trials)
    text = table(rows, f"seed {options.seed}: {boots} boots in {time.monotonic() - began:.0f} s")
    print(f"\n{text}", flush=True)
    if any(len(found) < len(options.case) for found in rows.values()):
        return 1
    if len(rows) == len(LOADERS) and options.case == list(CASES) and options.cuts >= _CUTS:
        before, _, after = PAGE.read_text().partition(_BEGIN)
        PAGE.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after.partition(_END)[2]}")
    return 0


def run(trial: Trial) -> _Rows:
    """Try one loader; returns the cases that ended as they should."""
    rows = _Rows()
    try:
        trial.machine.switch_on()
        trial.expect_boot("IMGA", "First")
        trial.machine.order("show_watchdog")
        trial.machine.wait("TRIAL watchdog active")
        for case in trial.cases:
            since = time.monotonic()
            rows[case] = trial.run(case), time.monotonic() - since
            print(f"{trial.loader}: {case}: {rows[case][0]} ({rows[case][1]:.0f} s)", flush=True)
    except LabError as err:
        print(f"{trial.loader}: BROKEN: {err}\nthe console: {trial.machine.log_path}", file=sys.stderr)
    trial.machine.end()
    return rows


def table(rows: Mapping[str, _Rows], summary: str) -> str:
    """Return the lines of the page: conditions, and a table with two columns for each loader."""
    lines = [
        f"{date.today():%d %B %Y}, {summary}, machines side by side on {os.cpu_count()} processors, load of the last",
        f"15 minutes {os.getloadavg()[2]:.1f} with them; {kernel_package(Kernel.GENERIC)}:\n",
        "| new image | " + " | ".join(f"{loader} | s" for loader in rows) + " |",
        "|---" * (1 + 2 * len(rows)) + "|",
    ]
    for case, (text, _) in CASES.items():
        cells = [f"{row[case][0]} | {row[case][1]:.0f}" for row in rows.values() if case in row]
        lines += [f"| {text} | {' | '.join(cells)} |"] if cells else []
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/test-upgrade", description=__doc__)
    parser.add_argument("--loader", action="append", choices=LOADERS, help="one loader; may be repeated")
    parser.add_argument("--case", action="append", choices=CASES, help="one case; may be repeated")
    parser.add_argument("--cuts", type=int, default=_CUTS, help="power cuts during a commit, for each loader")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="repeat the moments of an earlier run"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="new directory for disks and consoles")
    options = parser.parse_args()
    options.loader = [loader for loader in LOADERS if loader in (options.loader or LOADERS)]
    options.case = [case for case in CASES if case in (options.case or CASES)]
    return options


if __name__ == "__main__":
    sys.exit(main())
