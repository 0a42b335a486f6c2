"""A libvirtd whose machines do not run as root: they reach their disks, and no other user gets more than that."""

from __future__ import annotations

import pwd
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubeletx_libvirt.access import let_group_in

from kubeletx_testing.lab import Lab, PrivateAgent, put_manifest
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.tiny_machine import UP, make_tiny_machine_image
from tests.integration.support.machines import is_running, machine_agent, machine_manifest, wait_console
from tests.integration.support.survival import until

USER = "libvirt-qemu"
READ, WRITE = 'head -c 1 "$0"', ': >> "$0"'
TINY = {"limits": {"cpu": "1", "memory": "16Mi"}, "requests": {"cpu": "10m"}}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-user", user=USER)
    one.start()
    yield one
    one.end()


def owner(path: Path) -> tuple[int, int, int]:
    """User, group and mode."""
    status = path.stat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_machines_of_another_user_run_on_disks_that_it_cannot_change_or_list(
    lab: Lab,
    libvirtd: PrivateLibvirtd,
    make_agent: Callable[..., PrivateAgent],
    manifests: Path,
    tmp_path: Path,
) -> None:
    user = pwd.getpwnam(USER)
    image = make_tiny_machine_image(tmp_path)
    agent = machine_agent(lab, make_agent, endpoints=libvirtd.endpoint, imageDirectories=[str(tmp_path)])
    agent.root_dir.mkdir(mode=0o700)
    agent.start()
    put_manifest(manifests, machine_manifest("user", image=str(image), machine={"resources": TINY}))
    agent.wait_for("user", is_running, timeout_seconds=150)
    wait_console(agent, "user-lab", UP)
    (emulator,) = libvirtd.emulators()
    assert Path(f"/proc/{emulator}").stat().st_uid == user.pw_uid
    state = agent.root_dir / "runtimes" / "lv-user"
    (blob,) = (state / "images" / "blobs").iterdir()
    assert owner(blob) == (0, user.pw_gid, 0o440)
    (overlay,) = (state / "disks").glob("*/root-*.qcow2")
    assert owner(overlay) == (user.pw_uid, user.pw_gid, 0o660)
    for directory in (state, state / "images", blob.parent, state / "disks", overlay.parent):
        assert owner(directory) == (0, user.pw_gid, 0o710)
    assert can(user, READ, blob)
    assert not can(user, WRITE, blob)
    assert not can(user, 'ls "$0"', agent.root_dir)
    assert not can(user, READ, agent.root_dir / "kubeletx.db")
    agent.cli("vm", "stop", "user-lab")
    until(lambda: not libvirtd.emulators(), "the end of the machine")
    agent.cli("vm", "start", "user-lab")
    until(libvirtd.emulators, "the machine's next run")
    assert owner(blob) == (0, user.pw_gid, 0o440)
    (manifests / "user.json").unlink()
    agent.wait_gone("user", timeout_seconds=60)
    until(lambda: list((state / "disks").glob("*/*")) == [], "the end of its disks")


def test_directories_above_the_agents_own_stay_closed_and_are_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    state = closed / "root" / "runtimes" / "vm"
    state.mkdir(parents=True)
    closed.chmod(0o700)
    reported = let_group_in(state, 64055)
    assert reported is not None
    assert f"setfacl -m g:64055:x {closed}" in reported
    assert owner(closed) == (0, 0, 0o700)


def can(user: pwd.struct_passwd, script: str, path: Path) -> bool:
    """Whether a shell of this user can do it to the path ($0)."""
    command = ["sh", "-c", script, str(path)]
    found = subprocess.run(
        command, user=user.pw_uid, group=user.pw_gid, extra_groups=(), capture_output=True, check=False
    )
    return found.returncode == 0
