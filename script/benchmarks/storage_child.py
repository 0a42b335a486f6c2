"""The process in which volumes are mounted: ``python -m script.benchmarks.storage_child VOLUMES RUNS``.

It has a mount namespace of its own, so that no mount is visible outside and none is left after it. It prints `StorageTimes` as
JSON. The sides take turns, so that all see the same load of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
from kubeletx_flexvolume.agent.main import set_up_logs
from kubeletx_flexvolume.agent.operations import Operations

from kubeletx_testing.waiting import block_until, until

from .lab import ROOT
from .storage_node import StorageNode

FLOOR, CHECKED, AGENT, DRIVER = "floor", "floor with checks", "agent", "driver"
DISK: Final = "/var/tmp"
"""Directory on a disk; /tmp may be memory, which needs no fsync."""
Call = Callable[[str], Awaitable[None]]


class StorageTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of each side, by run. `mount`, `unmount`: seconds for all volumes.

    `cpu`: CPU seconds of this process and of the programs that it ran, for both; the driver's agent is another process.
    """

    mount: dict[str, list[float]]
    unmount: dict[str, list[float]]
    cpu: dict[str, list[float]]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One way to mount and unmount. `settle`: waits for work that follows the answer to an unmount."""

    mount: Call
    unmount: Call
    settle: Callable[[], Awaitable[None]]


def in_private_namespace(volumes: int, runs: int) -> StorageTimes:
    """Measure in a process with a mount namespace of its own. Raises CalledProcessError."""
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", __name__]
    done = subprocess.run(
        [*command, str(volumes), str(runs)],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=StorageTimes)


@contextlib.contextmanager
def logs_in(directory: str) -> Iterator[None]:
    """Write the log of the storage agent's parts to a file in `directory`, as a daemon does."""
    before = structlog.get_config()
    with (Path(directory) / "log.txt").open("w") as file:
        with contextlib.redirect_stderr(file):
            set_up_logs()
        try:
            yield
        finally:
            structlog.configure(**before)


async def measure(directory: Path, volumes: int, runs: int) -> StorageTimes:
    """Mount and unmount all volumes at once, `runs` times by each side; a first round is not counted."""
    node = StorageNode(directory, volumes=volumes)
    times = StorageTimes(mount={}, unmount={}, cpu={})
    with node.agent(), ThreadPoolExecutor(volumes) as threads:
        async with node.operations() as operations:
            sides = _sides(node, operations, threads)
            for number in range(runs + 1):
                for name, side in sides.items():
                    cpu = _cpu_seconds()
                    mounting = await _seconds(side.mount, node.names)
                    unmounting = await _seconds(side.unmount, node.names)
                    await side.settle()
                    if number:
                        times.mount.setdefault(name, []).append(mounting)
                        times.unmount.setdefault(name, []).append(unmounting)
                        times.cpu.setdefault(name, []).append(_cpu_seconds() - cpu)
    return times


def _sides(node: StorageNode, operations: Operations, threads: ThreadPoolExecutor) -> dict[str, Side]:
    async def on_thread(work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(threads, work)

    async def nothing() -> None:
        return

    def floor(*, checks: bool) -> Side:
        by_hand = {name: node.by_hand(name, checks=checks) for name in node.names}
        return Side(
            mount=lambda name: on_thread(by_hand[name].mount),
            unmount=lambda name: on_thread(by_hand[name].unmount),
            settle=nothing,
        )

    def path(name: str) -> str:
        return node.target(name).path

    return {
        FLOOR: floor(checks=False),
        CHECKED: floor(checks=True),
        AGENT: Side(
            mount=lambda name: operations.mount(node.request(name), node.target(name)),
            unmount=lambda name: operations.unmount(node.target(name)),
            settle=partial(until, lambda: not operations.state()),
        ),
        DRIVER: Side(
            mount=lambda name: on_thread(partial(node.call, "mount", path(name), node.options(name))),
            unmount=lambda name: on_thread(partial(node.call, "unmount", path(name))),
            settle=partial(asyncio.to_thread, block_until, node.agent_is_idle),
        ),
    }


async def _seconds(call: Call, names: list[str]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(call(name) for name in names))
    return time.perf_counter() - began


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    """Print the measurements as JSON."""
    volumes, runs = (int(word) for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="kubeletx-bench-", dir=DISK) as directory, logs_in(directory):
        times = asyncio.run(measure(Path(directory) / "node", volumes, runs))
    print(msgspec.json.encode(times).decode())


if __name__ == "__main__":
    main()
