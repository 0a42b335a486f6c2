"""fence_virsh against an emulated machine, which is really switched off and on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from kubeletx_testing.lab import Lab
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.waiting import block_until
from tests.integration.support.clusters import API_SERVERS, ApiServer, running_api
from tests.integration.support.remedy_lab import RemedyLab

MACHINE = """
<domain type='qemu'>
  <name>worker-1</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
</domain>
"""
SSH = """\
#!/bin/sh
# In place of ssh to the host of the machines: runs the command here, as a login of that host.
for command; do :; done
export LIBVIRT_DEFAULT_URI={url}
exec sh -c "$command"
"""


@pytest.fixture(params=API_SERVERS)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiServer]:
    yield from running_api(request.param, tmp_path)


@pytest.fixture
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-fence")
    one.start()
    connection = libvirt.open(one.url)
    connection.defineXML(MACHINE).create()
    connection.close()
    yield one
    one.end()


@pytest.fixture
def remedy(api: ApiServer, libvirtd: PrivateLibvirtd, tmp_path: Path) -> Iterator[RemedyLab]:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(url=shlex.quote(libvirtd.url)))
    ssh.chmod(0o755)
    made = RemedyLab(api, tmp_path)
    for name in ("worker-1", "worker-2", "worker-3"):
        made.add_node(name)
    access = f"agent=fence_virsh\nip=localhost\nusername=root\nidentity_file={ssh}\nssh_path={ssh}\nplug=worker-1\n"
    data = {
        "config.properties": "node_name=worker-1\nisolation=mark-unschedulable\npower_management=off on\n",
        "fence-method-off": f"{access}action=off\n",
        "fence-method-on": f"{access}action=on\n",
    }
    made.config_map("fence-config-worker-1", data)
    yield made
    made.end()


def test_an_emulated_machine_is_switched_off_before_its_pods_go_and_on_again(
    remedy: RemedyLab, libvirtd: PrivateLibvirtd
) -> None:
    (before,) = libvirtd.emulators()
    remedy.add_pod("web-0", "worker-1")
    remedy.start()
    remedy.ready("worker-1", "Unknown")
    block_until(lambda: before not in libvirtd.emulators())
    remedy.await_state("worker-1", "Power-Management/Done")
    block_until(lambda: remedy.pods("worker-1") == [])
    (after,) = libvirtd.emulators()
    assert after != before
    remedy.ready("worker-1", "True", boot_id="boot 2")
    remedy.await_state("worker-1", "Recovery/Final")
    messages = [line["message"] for line in remedy.fence("worker-1")["history"]]
    assert messages.index("off: fence_virsh: off, verified by status") < messages.index("1 pods released")
