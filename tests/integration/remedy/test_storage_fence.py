"""A storage fence stops a real write: a node writes over the network until its export is taken away."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import free_port
from kubeletx_testing.waiting import block_until
from tests.integration.support.clusters import API_SERVERS, ApiServer, running_api
from tests.integration.support.remedy_lab import RemedyLab

AGENT = """\
#!/bin/sh
# Ends the export of a disk (qemu-nbd) to one node.
while read -r line; do
  case "$line" in action=*) action=${line#action=};; pidfile=*) pid=$(cat "${line#pidfile=}");; esac
done
case "$action" in
metadata) cat <<END
<?xml version="1.0"?>
<resource-agent name="fence_nbd" shortdesc="nbd">
<parameters>
  <parameter name="action" required="1"><content type="string" default="off"/></parameter>
  <parameter name="pidfile" required="1"><content type="string"/></parameter>
</parameters>
<actions><action name="on"/><action name="off"/><action name="status"/><action name="monitor"/></actions>
</resource-agent>
END
;;
off) kill -KILL "$pid"; while kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.Z' /proc/$pid/status; do :; done;;
status) grep -q '^State:.[^Z]' /proc/$pid/status 2>/dev/null || exit 2;;
esac
"""
WRITER = "while qemu-io -f raw -c 'write -q 0 4096' {url}; do echo x >> {written}; done"
"""Shell commands of the node: writes until a write fails."""


@pytest.fixture(params=API_SERVERS)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiServer]:
    yield from running_api(request.param, tmp_path)


@pytest.fixture
def export(tmp_path: Path) -> Iterator[str]:
    """Serve a disk for one node; return its URL."""
    disk, port = tmp_path / "disk", free_port()
    disk.write_bytes(bytes(1 << 20))
    command = ["qemu-nbd", "--persistent", "--bind=127.0.0.1", f"--port={port}", "--format=raw", str(disk)]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    (tmp_path / "pid").write_text(str(server.pid))
    yield f"nbd://127.0.0.1:{port}"
    server.kill()
    server.wait()


@pytest.fixture
def writer(export: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The node's process that writes to the disk."""
    script = WRITER.format(url=export, written=shlex.quote(str(tmp_path / "written")))
    made = subprocess.Popen(["sh", "-c", script], stdin=subprocess.DEVNULL, start_new_session=True)
    yield made
    if made.poll() is None:
        os.killpg(made.pid, signal.SIGKILL)
    made.wait()


@pytest.fixture
def remedy(api: ApiServer, tmp_path: Path) -> Iterator[RemedyLab]:
    agent = tmp_path / "fence_nbd"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    made = RemedyLab(api, tmp_path, agents=tmp_path)
    for name in ("worker-1", "worker-2", "worker-3"):
        made.add_node(name)
    method = f"agent=fence_nbd\naction=off\npidfile={tmp_path}/pid\nstorage=nbd.example.com\n"
    made.config_map(
        "fence-config-worker-1", {"config.properties": "isolation=cut-off\n", "fence-method-cut-off": method}
    )
    yield made
    made.end()


def _add_pod_with_volume(remedy: RemedyLab) -> None:
    create, size = remedy.api.admin.create, {"storage": "1Mi"}
    spec = {"accessModes": ["ReadWriteOnce"]}
    source = {"csi": {"driver": "nbd.example.com", "volumeHandle": "disk"}}
    create("persistentvolumes", {"metadata": {"name": "pv"}, "spec": {**spec, **source, "capacity": size}})
    claim = {
        "metadata": {"name": "data"},
        "spec": {**spec, "volumeName": "pv", "resources": {"requests": size}},
    }
    create("persistentvolumeclaims", claim, "default")
    pod = {
        "nodeName": "worker-1",
        "containers": [{"name": "main", "image": "busybox"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    create("pods", {"metadata": {"name": "db-0"}, "spec": pod}, "default")


def test_pods_on_the_storage_go_after_the_node_cannot_write_and_the_others_stay(
    remedy: RemedyLab, writer: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    _add_pod_with_volume(remedy)
    remedy.add_pod("web-0", "worker-1")
    block_until((tmp_path / "written").exists)
    remedy.start()
    remedy.ready("worker-1", "Unknown")
    block_until(lambda: remedy.pods("worker-1") == ["web-0"])
    block_until(lambda: writer.poll() is not None)  # its write has failed
    assert remedy.fence("worker-1")["flow"]["fenced"] == ["nbd.example.com"]
