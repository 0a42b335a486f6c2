"""Commands of an administrator: output, exit codes, what wrong options are told."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
import structlog
from click.testing import CliRunner, Result
from kubeletx_flexvolume.attachments.commands import add_commands
from kubeletx_flexvolume.attachments.garbage import GarbageLists
from kubeletx_flexvolume.attachments.record import value_of
from kubeletx_flexvolume.attachments.sqlite import SqliteStore

from kubeletx.api import SystemClock
from kubeletx_testing.apiserver import ApiServerDouble
from plugins.flexvolume.tests.attachments.attachment_model import entry
from plugins.flexvolume.tests.attachments.cluster_model import RECORDS, add_node, add_volume, set_up


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """The commands set up the log of their process."""
    yield
    structlog.reset_defaults()


def run(*arguments: object) -> Result:
    group = click.Group("kubeletx-flexvolume")
    add_commands(group)
    return CliRunner().invoke(group, [str(one) for one in arguments])


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A file with two records."""
    path = tmp_path / "state" / "records.db"

    async def fill(store: SqliteStore) -> None:
        first = entry("n1", "web-0", device="/dev/loop0", since="2030-01-01T00:00:00Z")
        await store.of("volumeattachments").create("pv-1", value_of([first]))
        await store.of("volumeattachments").create(
            "pv-2", value_of([entry("n1", "a", read_only=True), entry("n2", "b", boot_id="before")])
        )
        await store.of("nodes").create("n1", {"bootID": "n1-boot", "at": "2030-01-01T00:00:00Z"})
        await store.of("nodes").create("n2", {"bootID": "n2-boot", "at": "2030-01-01T00:00:00Z"})

    within(path, fill)
    return path


def within(path: Path, work: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def go() -> None:
        store = SqliteStore(path, SystemClock())
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(go())


def test_attachments_are_shown(records: Path) -> None:
    shown = run("attachments", "--records", records)
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.output.strip().split("\n")]
    assert lines == [
        ["VOLUME", "NODE", "POD", "MODE", "DEVICE", "STATUS", "SINCE", "REASON"],
        [
            "pv-1",
            "n1",
            "default/web-0",
            "ReadWrite",
            "/dev/loop0",
            "Attaching",
            "2030-01-01T00:00:00Z",
            "-",
        ],
        ["pv-2", "n1", "default/a", "ReadOnly", "-", "Attaching", "-", "-"],
        ["pv-2", "n2", "default/b", "ReadWrite", "-", "Attaching", "-", "-"],
    ]


def test_attachments_are_json(records: Path) -> None:
    (shown,) = json.loads(run("attachments", "--records", records, "-o", "json", "pv-1").stdout)
    assert (shown["volume"], shown["node"], shown["pod"], shown["bootID"]) == (
        "pv-1",
        "n1",
        "default/web-0",
        "n1-boot",
    )


def test_a_volume_without_a_record_is_named(records: Path) -> None:
    shown = run("attachments", "--records", records, "pv-9")
    assert shown.exit_code == 1
    assert "volume pv-9 has no attachment record: no pod has it attached" in shown.output


def test_a_scan_shows_and_removes_stale_entries(records: Path) -> None:
    dry = run("scan", "--dry-run", "--records", records)
    assert (dry.exit_code, "found 1 stale entry of 3 entries in 2 records" in dry.output) == (0, True)
    assert "node n2 has restarted since (its boot ID is n2-boot)" in dry.output
    done = run("scan", "--records", records, "-o", "json")
    (stale,) = json.loads(done.stdout)
    assert (stale["volume"], stale["node"]) == ("pv-2", "n2")
    assert done.stderr.endswith("removed 1 stale entry of 3 entries in 2 records\n")
    assert "Scanned attachment records" not in done.stderr
    assert "removed 0 stale entries of 2 entries in 2 records" in run("scan", "--records", records).output


def test_a_scan_that_could_not_look_says_so(records: Path) -> None:
    async def add(store: SqliteStore) -> None:
        await store.of("volumeattachments").create("pv-3", value_of([entry("n7")]))

    within(records, add)
    shown = run("scan", "--records", records)
    assert (shown.exit_code, "node n7: node n7 has no record" in shown.output) == (1, True)


def test_records_that_cannot_be_read_are_named_and_skipped(records: Path) -> None:
    with closing(sqlite3.connect(records)) as connection, connection:
        for kind in ("volumeattachments", "staleattachments", "nodes"):
            name = "pv-0" if kind == "volumeattachments" else "n1" if kind == "staleattachments" else "n9"
            connection.execute("INSERT INTO records VALUES (?, ?, 'v', 'no JSON')", (kind, name))
    shown = run("attachments", "--records", records)
    assert (shown.exit_code, "pv-1" in shown.output) == (1, True)
    assert "attachment record pv-0 cannot be read" in shown.output
    shown = run("scan", "--records", records)
    assert shown.exit_code == 1
    assert "pv-2" in shown.output
    assert "attachment record pv-0 cannot be read" in shown.output
    shown = run("release", "pv-1", "--node", "n1", "--yes", "--records", records)
    assert shown.exit_code == 0
    assert "removed 1 entry of node n1 from volume pv-1" in shown.output
    assert "garbage list of node n1 cannot be read" in shown.output
    shown = run("release", "pv-0", "--node", "n1", "--yes", "--records", records)
    assert (shown.exit_code, "attachment record pv-0 cannot be read" in shown.output) == (1, True)


def test_a_release_needs_a_confirmation(records: Path) -> None:
    shown = run("release", "pv-1", "--node", "n1", "--records", records)
    assert shown.exit_code == 2
    assert "make sure that node n1 is off" in shown.output
    assert "pv-1" in run("attachments", "--records", records).output


def test_a_release_removes_the_entries_of_one_node_and_notes_them(records: Path) -> None:
    shown = run("release", "pv-2", "--node", "n1", "--yes", "--records", records)
    assert (shown.exit_code, shown.stdout) == (0, "removed 1 entry of node n1 from volume pv-2\n")
    assert "default/b" in run("attachments", "--records", records, "pv-2").output

    async def look(store: SqliteStore) -> None:
        (item,) = await GarbageLists(store.of("staleattachments"), SystemClock()).of("n1")
        assert item.removed_for.startswith("an administrator has released it on ")

    within(records, look)
    again = run("release", "pv-2", "--node", "n1", "--yes", "--records", records)
    assert again.exit_code == 1
    assert "volume pv-2 has no entry of node n1; nodes with entries: n2" in again.output


@pytest.mark.parametrize("verb", [["scan"], ["attachments"], ["release", "pv-1", "--node", "n1", "--yes"]])
def test_records_that_are_nowhere_are_explained(verb: list[str], tmp_path: Path) -> None:
    shown = run(*verb, "--records", tmp_path / "none.db")
    assert (shown.exit_code, "none.db does not exist" in shown.output) == (2, True)
    assert list(tmp_path.iterdir()) == []
    shown = run(*verb, "--storage-kubeconfig", tmp_path / "none")
    assert (shown.exit_code, "cannot be read" in shown.output) == (2, True)


def test_two_stores_are_one_too_many(records: Path, api: ApiServerDouble) -> None:
    shown = run("scan", "--records", records, "--storage-kubeconfig", api.admin_kubeconfig())
    assert (shown.exit_code, "both are given" in shown.output) == (2, True)


def test_the_commands_work_in_a_cluster(api: ApiServerDouble) -> None:
    kubeconfig = set_up(api)
    add_node(api.admin, "n1")
    add_volume(api.admin, "pv-1", claim="data")
    for name, node in (("pv-1", "n1"), ("pv-2", "gone")):
        made = {
            "apiVersion": RECORDS.api_version,
            "kind": RECORDS.kind,
            "metadata": {"name": name},
            "spec": value_of([entry(node)]),
        }
        api.admin.create(RECORDS, made)
    shown = run("scan", "--storage-kubeconfig", kubeconfig)
    assert (shown.exit_code, "node gone does not exist any more" in shown.output) == (0, True)
    shown = run("release", "pv-1", "--node", "n1", "--yes", "--storage-kubeconfig", kubeconfig)
    assert shown.exit_code == 0, shown.output
    assert api.admin.list(RECORDS)["items"] == []
    events = {one["involvedObject"]["kind"]: one for one in api.admin.list("events")["items"]}
    assert events["PersistentVolumeClaim"]["reason"] == "AttachmentLockBroken"
    assert events["VolumeAttachment"]["reason"] == "AttachmentEntryRemoved"


def test_a_cluster_without_the_definitions_is_explained(api: ApiServerDouble) -> None:
    shown = run("attachments", "--storage-kubeconfig", api.admin_kubeconfig())
    assert shown.exit_code == 1
    assert "kubeletx-flexvolume manifests" in shown.output


def test_manifests_are_printed() -> None:
    shown = run("manifests", "--namespace", "storage")
    assert shown.exit_code == 0
    assert shown.output.count("kind: CustomResourceDefinition\n") == 3
    assert "namespace: storage\n" in shown.output
    wrong = run("manifests", "--cluster-resource", "cephclusters")
    assert (wrong.exit_code, "write for example ceph.rook.io/v1/cephclusters" in wrong.output) == (2, True)


def test_the_commands_are_light_to_import() -> None:
    code = (
        "import sys, kubeletx_flexvolume.attachments.commands; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'aiohttp', 'asyncio', 'kubeletx', 'msgspec', 'sqlite3', 'structlog', 'yaml'}))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert printed.stdout.strip() == "[]"
