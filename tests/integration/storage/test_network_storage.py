"""Backends nfs and nbd with real servers and real devices, in an emulated guest whose kernel has the clients."""

from __future__ import annotations

import compileall
import sys
from pathlib import Path

import pytest

from kubeletx_testing.lab.cgroup_v2_guest import run_with_cgroup_v2

REPOSITORY = Path(__file__).parents[3]
TIMEOUT_SECONDS = 600
MODULES = ("ext4", "nbd", "nfsv4")
PACKAGES = (
    "nfs-common",
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "libnfsidmap1",
    "libntirpc4.3",
    "libtirpc3",
    "liburcu8",
    "libwbclient0",
    "nbd-client",
    "libnl-3-200",
    "libnl-genl-3-200",
)


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
def test_volumes_of_servers_move_between_nodes_and_a_broken_holder_writes_no_more(tmp_path: Path) -> None:
    for name in ("kubeletx", "plugins", "testing", "tests"):  # the guest would need seconds for it
        compileall.compile_dir(REPOSITORY / name, quiet=2)
    command = [sys.executable, "-m", "tests.integration.storage.network_storage", "/tmp/storage"]
    run = run_with_cgroup_v2(
        command,
        tmp_path,
        directory=REPOSITORY,
        timeout_seconds=TIMEOUT_SECONDS,
        modules=MODULES,
        packages=PACKAGES,
    )
    assert run.status == 0, f"{run.output[-6000:]}\n{run.console[-2000:]}"
