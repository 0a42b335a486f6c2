"""Attack: SIGKILL at random moments while pods come and go.

Between two kills manifests are added and removed. After the last start exactly the wanted pods must run, each with
one sandbox and one running container, and nothing of the others may be left on a runtime or on the disk.
"""

from __future__ import annotations

import random
import time

from kubeletx.cri.stubs import runtime_v1_pb2 as pb

from .servers import HOSTILE, SOUND, Servers, seeded, until
from .target import WITNESS, Broken, Target, target

NAMES = tuple(f"k{number}" for number in range(8))
LONGEST_SECONDS = 1.5


def kills(rounds: int, seed: int) -> str:
    """In each round, change manifests, wait a random time, kill the agent and start it again.

    Returns what was tried.
    """
    with target() as node:
        wanted: set[str] = set()
        for number in range(rounds):
            rng = seeded(seed, "kills", number)
            wanted = _change(rng, node, wanted)
            time.sleep(rng.random() * LONGEST_SECONDS)
            node.agent.kill()
            if rng.random() < 0.5:
                wanted = _change(rng, node, wanted)
            node.agent.start()
            node.restarted()
            node.check()
        node.wait_pods(wanted)
        _compare(node, wanted)
    return f"{rounds} kills, slowest list of pods {node.slowest_answer * 1000:.0f} ms"


def _change(rng: random.Random, node: Target, wanted: set[str]) -> set[str]:
    """Add or remove up to four manifests; returns the names of those that exist afterwards."""
    now = set(wanted)
    for name in rng.sample(NAMES, rng.randint(0, 4)):
        if name in now:
            (node.manifests / f"{name}.json").unlink()
            now.discard(name)
        else:
            node.put(name, SOUND if NAMES.index(name) % 2 else HOSTILE)
            now.add(name)
    return now


def _compare(node: Target, wanted: set[str]) -> None:
    """Raise Broken unless the runtimes run exactly the wanted pods and the disk has no directory of another pod."""
    names = sorted(f"{name}-target" for name in {*wanted, WITNESS})
    if not until(lambda: _held(node.servers) == names, seconds=60):
        raise Broken(f"the runtimes run {_held(node.servers)}; wanted are {names}")
    uids = {pod.metadata.uid for pod in node.pods()}

    def strays() -> list[str]:
        return [path.name for path in (node.agent.root_dir / "pods").iterdir() if path.name not in uids]

    if not until(lambda: not strays(), seconds=60):
        raise Broken(f"directories of pods that are gone: {strays()}")


def _held(servers: Servers) -> list[str]:
    """Sorted pod names, one for each sandbox; twice for a sandbox that has not exactly one running container."""

    def ask() -> list[str]:
        names = []
        for model in (servers.sound.model, servers.hostile.model):
            for sandbox in model.sandboxes.values():
                inside = [c for c in model.containers.values() if model.sandbox_of[c.id] == sandbox.id]
                running = sum(container.state == pb.CONTAINER_RUNNING for container in inside)
                names += [sandbox.metadata.name] * (1 if running == 1 else 2)
        return sorted(names)

    return servers.look(ask)
