"""Benchmark of attachment records in the SQLite file of a machine: one entry taken and released, and a scan of many records."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec
from kubeletx_flexvolume.agent.background import Attachments
from kubeletx_flexvolume.agent.config import AgentConfig
from kubeletx_flexvolume.attachments.node import LocalVolume
from kubeletx_flexvolume.attachments.record import entry_of, value_of
from kubeletx_flexvolume.attachments.stale import Scanner
from kubeletx_flexvolume.attachments.stores import open_stores
from kubeletx_flexvolume.values import Holder, StorageVolume

from kubeletx.api import SystemClock

from .model import Figure, Result, Sizes, figure, now
from .storage_child import DISK, logs_in

CALL_MS: Final = 5.0
SCAN_SECONDS: Final = 5.0
STALE: Final = 500
"""One of so many records is of an earlier boot of the node."""
NODE, BOOT = "bench", "bench-boot"


class NoVolumes:
    """Volumes of a node that mounts nothing. Implements `LocalVolumes`."""

    def volumes(self) -> list[LocalVolume]:
        return []

    def find(self, name: str) -> LocalVolume | None:
        return None

    async def drop(self, volume: StorageVolume, *, why: str, force: bool = False) -> None:
        return


def storage_records(sizes: Sizes) -> Result:
    """Measure takes, releases and a scan."""
    with tempfile.TemporaryDirectory(prefix="kubeletx-bench-", dir=DISK) as directory, logs_in(directory):
        return asyncio.run(_measure(Path(directory), sizes))


async def _measure(directory: Path, sizes: Sizes) -> Result:
    takes, releases, commits = await _calls(directory, sizes.record_calls)
    seconds = await _scan(directory, sizes.records)
    both = [take + release for take, release in zip(takes, releases, strict=True)]
    return Result(
        name="storage-records",
        figures=(
            _call("an entry taken in a record of SQLite", takes, commits),
            _call("an entry released from a record of SQLite", releases, commits),
            _call("an entry taken and released", both, [2 * one for one in commits]),
            figure(f"scan of {sizes.records:,} records", "s", seconds, at_most=SCAN_SECONDS, digits=2),
        ),
        notes=(
            "floor: a bare commit of one row in the same mode, for a release too",
            f"the scan also removes {len(range(0, sizes.records, STALE))} entries of an earlier boot",
        ),
        measured_at=now(),
    )


def _call(label: str, ours: list[float], floors: list[float]) -> Figure:
    in_ms = ([seconds * 1000 for seconds in ours], [seconds * 1000 for seconds in floors])
    return figure(label, "ms", *in_ms, at_most=CALL_MS, digits=2)


async def _calls(directory: Path, count: int) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds of takes, of releases and of bare commits, which take turns."""
    state = directory / "state"
    state.mkdir(mode=0o700)
    config = AgentConfig(
        node_name=NODE, boot_id=BOOT, state_dir=state, records=directory / "a" / "records.db"
    )
    made = Attachments(config, backends={}, local=NoVolumes, blocking=asyncio.to_thread, clock=SystemClock())
    bare = _bare(directory / "bare.db")
    takes, releases, commits = [], [], []
    try:
        await made.before_serving()
        for number in range(count + 1):
            began = time.perf_counter()
            await made.book.take(_volume("pv-1"), _holder(BOOT))
            taken = time.perf_counter()
            await made.book.release(_volume("pv-1"), _holder(BOOT))
            released = time.perf_counter()
            bare.execute("INSERT INTO records VALUES (?, ?)", (number, "x" * 400))
            bare.commit()
            committed = time.perf_counter()
            if number:  # the first calls open the file
                takes.append(taken - began)
                releases.append(released - taken)
                commits.append(committed - released)
    finally:
        bare.close()
        await made.close()
    return takes, releases, commits


async def _scan(directory: Path, count: int) -> float:
    """Return the seconds of a scan of `count` records."""
    path = directory / "b" / "records.db"
    stores = open_stores(kubeconfig=None, records=path, node=NODE, clock=SystemClock())
    try:
        assert stores.own_nodes is not None
        await stores.own_nodes.announce(NODE, BOOT)
        fill(path, count)
        began = time.perf_counter()
        report = await Scanner(stores).scan()
        seconds = time.perf_counter() - began
    finally:
        await stores.close()
    if report.records != count:
        raise RuntimeError(f"the scan found {report.records} of {count} records")
    return seconds


def fill(path: Path, count: int) -> None:
    """Write records of attachments into the file of an open store; each `STALE`th is of an earlier boot."""
    rows = []
    for number in range(count):
        holder = _holder(BOOT if number % STALE else "an-earlier-boot")
        value: Any = value_of([entry_of(_volume(f"pv-{number}"), holder)])
        rows.append(("volumeattachments", f"pv-{number}", f"v{number}", msgspec.json.encode(value).decode()))
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
    connection.close()


def _bare(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, value TEXT)")
    connection.commit()
    return connection


def _volume(name: str) -> StorageVolume:
    return StorageVolume(name=name, backend="loop", image=f"{name}.img")


def _holder(boot: str) -> Holder:
    return Holder(
        node=NODE,
        boot_id=boot,
        pod_namespace="default",
        pod="bench-pod",
        pod_uid="bench-uid",
        mount_dir="/pods/bench-uid/v",
    )
