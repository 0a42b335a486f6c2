"""Directories of the node in the guest: read, written, refused for writing, and single files.

By virtiofs; test_user_volumes has both ways of sharing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kubeletx_testing.lab import Lab, put_manifest
from tests.integration.support.bench import Bench
from tests.integration.support.machines import machine_manifest
from tests.integration.support.vm_pods import address_of, ask, make_machines

SCRIPT = """#!/bin/sh
cat /data/hello /config/hello /etc/one.conf > /www/read 2>&1
echo from-the-guest > /data/answer
echo no > /config/answer 2>/dev/null
echo done > /tmp/done
mv /tmp/done /www/done
"""


def test_a_guest_reads_and_writes_directories_and_a_read_only_one_stays_as_it_is(
    make_bench: Callable[..., Bench], lab: Lab, tmp_path: Path
) -> None:
    bench = make_machines(make_bench, lab, tmp_path, shares="virtiofs")
    data, config = tmp_path / "data", tmp_path / "config"
    for directory in (data, config):
        directory.mkdir()
        (directory / "hello").write_text(f"hello {directory.name}\n")
    (tmp_path / "one.conf").write_text("one=1\n")
    mounts = [
        {"name": "data", "mountPath": "/data"},
        {"name": "config", "mountPath": "/config", "readOnly": True},
        {"name": "one", "mountPath": "/etc/one.conf", "readOnly": True},
    ]
    volumes = [
        {"name": "data", "hostPath": {"path": str(data)}},
        {"name": "config", "hostPath": {"path": str(config)}},
        {"name": "one", "hostPath": {"path": str(tmp_path / "one.conf"), "type": "File"}},
    ]
    machine = {"volumeMounts": mounts, "cloudInitUserDataScript": SCRIPT}
    name = "vm-shares"
    put_manifest(bench.manifests, machine_manifest(name, machine=machine, spec={"volumes": volumes}))
    address = address_of(bench, name)
    ask(address)
    assert ask(address, "/done") == "done\n"
    assert ask(address, "/read") == "hello data\nhello config\none=1\n"
    assert (data / "answer").read_text() == "from-the-guest\n"
    assert not (config / "answer").exists()
    (bench.manifests / f"{name}.json").unlink()
    bench.agent.wait_gone(name)
    assert [line for line in Path("/proc/mounts").read_text().splitlines() if "/shares/" in line] == []
    assert (config / "hello").exists()
