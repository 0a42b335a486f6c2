"""Attack: mutated manifests in files with odd names, beside valid manifests, whose pods must still run."""

from __future__ import annotations

import os
import random
from pathlib import Path

from .mutators import base_pod, mutate
from .servers import HOSTILE, SOUND, seeded
from .target import Target, target

BATCH = 40
"""Manifests of one round."""


def manifests(rounds: int, seed: int) -> str:
    """In each round, write mutated manifests and then a valid one, wait for its pod, and remove all of them.

    Returns what was tried. Raises Broken if the agent or the witness fails.
    """
    written = 0
    with target() as node:
        for number in range(rounds):
            rng = seeded(seed, "manifests", number)
            paths = [_write(rng, node, number, index) for index in range(BATCH)]
            written += len(paths)
            node.put(f"marker-{number}")
            node.agent.wait_for(f"marker-{number}")
            node.check()
            for path in paths:
                os.unlink(path)  # noqa: PTH108 - the name is bytes
            (node.manifests / f"marker-{number}.json").unlink()
            node.wait_pods(set())
            node.check()
        peak = node.peak_bytes() >> 20
    return f"{written} manifests, slowest list of pods {node.slowest_answer * 1000:.0f} ms, peak {peak} MiB"


def _write(rng: random.Random, node: Target, number: int, index: int) -> bytes:
    name = f"m-{number}-{index}"
    data = mutate(rng, base_pod(name, rng.choice((SOUND, SOUND, SOUND, HOSTILE))))
    path = os.fsencode(node.manifests) + b"/" + _file_name(rng, name)
    Path(os.fsdecode(path)).write_bytes(data)
    return path


def _file_name(rng: random.Random, name: str) -> bytes:
    """Name of a manifest's file, sometimes with odd bytes; the suffix is random, so YAML files get JSON too."""
    odd = rng.choice((b"", b"", b"", b"\xff\xfe", b"\xe2\x80\xa8", b" ", b"\n", b"\x1b[0m"))
    return name.encode() + odd + rng.choice((b".json", b".yaml", b""))
