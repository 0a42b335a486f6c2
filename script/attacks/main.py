"""Runs attacks and prints what they tried; see script/attack and docs/security.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from kubeletx_testing.lab.process import LabError

from . import images, kills, manifests, requests, runtime
from .target import KEPT_LOG, Broken

ATTACKS: dict[str, Callable[[int, int], str]] = {
    "manifests": manifests.manifests,
    "runtime": runtime.runtime,
    "kills": kills.kills,
    "requests": requests.requests,
    "images": images.images,
}
"""Name → function of (rounds, seed), which returns what was tried and raises Broken if the attack succeeded."""
ROUNDS = {"manifests": 50, "runtime": 16, "kills": 60, "requests": 20, "images": 40}
SHORT = {"manifests": 2, "runtime": 4, "kills": 4, "requests": 1, "images": 2}


def main() -> int:
    """Run the attacks that the command line names; exit status 0 if the agent withstood all of them, else 1."""
    options = _options()
    if options.list:
        print("\n".join(ATTACKS))
        return 0
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}")
    held = [
        run(name, options.rounds or (SHORT if options.short else ROUNDS)[name], seed) for name in options.only
    ]
    return 0 if all(held) else 1


def run(name: str, rounds: int, seed: int) -> bool:
    """Run one attack and print what it tried or what it broke; True if the agent withstood it."""
    began = time.monotonic()
    try:
        said = ATTACKS[name](rounds, seed)
    except (Broken, LabError) as err:
        print(f"{name}: BROKEN after {time.monotonic() - began:.0f} s ({rounds} rounds, seed {seed}): {err}")
        print(f"the agent's log: {KEPT_LOG}")
        return False
    print(f"{name}: held, {time.monotonic() - began:.0f} s: {said}")
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/attack", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(ATTACKS), help="one attack; may be repeated")
    parser.add_argument("--rounds", type=int, help="rounds of each attack")
    parser.add_argument("--short", action="store_true", help="few rounds of each")
    parser.add_argument("--seed", type=int, help="repeat an earlier run")
    parser.add_argument("--list", action="store_true", help="name the attacks")
    options = parser.parse_args()
    options.only = options.only or list(ATTACKS)
    return options


if __name__ == "__main__":
    sys.exit(main())
