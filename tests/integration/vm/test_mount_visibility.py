"""Shared directories and a libvirtd in a mount namespace of its own: nothing of the pod's is missed or left open."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubeletx_libvirt.shares import Share, ShareKind, plan_shares, prepare_shares, release_shares

from kubeletx.api import Mount, Unavailable
from kubeletx_testing.lab import Lab, PrivateAgent, put_manifest
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.mounts import list_mounts, make_shared, unmount_below
from kubeletx_testing.lab.tiny_machine import make_tiny_machine_image
from kubeletx_testing.lab.tools import get_tool
from tests.integration.support.bench import until
from tests.integration.support.machines import is_running, machine_agent, machine_manifest

TINY = {"limits": {"cpu": "1", "memory": "16Mi"}, "requests": {"cpu": "10m"}}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-mounts")
    yield one
    one.end()


def test_a_machine_whose_volume_libvirtd_does_not_see_starts_when_it_does(
    lab: Lab,
    libvirtd: PrivateLibvirtd,
    make_agent: Callable[..., PrivateAgent],
    manifests: Path,
    tmp_path: Path,
) -> None:
    image = make_tiny_machine_image(tmp_path)
    agent = machine_agent(
        lab, make_agent, endpoints=libvirtd.endpoint, shares="9p", imageDirectories=[str(tmp_path)]
    )
    agent.root_dir.mkdir(mode=0o700)
    make_shared(agent.root_dir)
    subprocess.run([get_tool("mount"), "--make-private", str(agent.root_dir)], check=True)
    libvirtd.start()
    agent.start()
    machine = {"resources": TINY, "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    volume = {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    put_manifest(
        manifests, machine_manifest("blind", image=str(image), machine=machine, spec={"volumes": [volume]})
    )
    reported = until(lambda: refusal(agent), "the refusal", seconds=150)
    assert "volume scratch at /scratch: in the place of " in reported
    assert "has something else, since it does not see the same mounts as the agent" in reported
    assert "restart libvirtd" in reported
    assert libvirtd.emulators() == []
    libvirtd.stop()
    libvirtd.start()  # in a namespace made from the agent's as it is now, with the volume
    agent.wait_for("blind", is_running, timeout_seconds=150)
    (manifests / "blind.json").unlink()
    agent.wait_gone("blind", timeout_seconds=60)


def refusal(agent: PrivateAgent) -> str:
    events = json.loads(agent.get("/v1/events"))["items"]
    return next((one["message"] for one in events if "volume scratch" in one["message"]), "")


# --- the mounts themselves, without libvirt ---


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """The machine's own, on a mount that others get copies of."""
    machine = tmp_path / "machine"
    machine.mkdir()
    make_shared(machine)
    yield machine / "shares"
    unmount_below(tmp_path)


@pytest.fixture
def other(directory: Path) -> Iterator[Path]:
    """The root of a process in a mount namespace that gets copies."""
    command = [get_tool("unshare"), "--mount", "--propagation", "slave", "sh", "-c", "echo; exec sleep 120"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield Path(f"/proc/{process.pid}/root")
        process.kill()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.mkdir()
    (path / "kept").write_text("kept\n")
    return path


def shares_of(volume: Path, directory: Path, *, read_only: bool, file: str = "") -> tuple[Share, ...]:
    source = volume / file if file else volume
    return plan_shares(
        [Mount(source=str(source), target="/in/guest", name="data", read_only=read_only)],
        directory=directory,
        kind=ShareKind.NINE_P,
        files=frozenset({str(source)} if file else ()),
        is_root=False,
    )


def test_a_read_only_mount_is_so_for_everybody_who_gets_a_copy(
    directory: Path, other: Path, volume: Path
) -> None:
    (share,) = shares_of(volume, directory, read_only=True)
    prepare_shares([share])
    for root in ("", str(other)):
        assert Path(f"{root}{share.place}/kept").read_text() == "kept\n"
        with pytest.raises(OSError, match="Read-only file system"):
            Path(f"{root}{share.place}/more").touch()
    assert list_mounts(directory) == [share.directory]
    release_shares(directory)
    assert not directory.exists()
    assert os.listdir(volume) == ["kept"]


def test_a_mount_that_was_left_open_to_writing_is_made_again(directory: Path, volume: Path) -> None:
    (share,) = shares_of(volume, directory, read_only=True)
    Path(share.directory).mkdir(parents=True)
    subprocess.run([get_tool("mount"), "--bind", str(volume), share.directory], check=True)
    prepare_shares([share])
    with pytest.raises(OSError, match="Read-only file system"):
        Path(share.directory, "more").touch()
    assert list_mounts(directory) == [share.directory]


def test_of_a_single_file_the_guest_can_write_that_file_and_nothing_beside_it(
    directory: Path, other: Path, volume: Path
) -> None:
    (share,) = shares_of(volume, directory, read_only=False, file="kept")
    prepare_shares([share])
    prepare_shares([share])
    seen = Path(f"{other}{share.directory}")
    assert os.listdir(seen) == ["guest"]
    (seen / "guest").write_text("written\n")
    with pytest.raises(OSError, match="Read-only file system"):
        (seen / "beside").mkdir()
    assert (volume / "kept").read_text() == "written\n"
    release_shares(directory)
    assert not directory.exists()
    assert (volume / "kept").read_text() == "written\n"


def test_below_a_root_directory_that_is_a_link_a_volume_is_let_go_and_not_emptied(
    directory: Path, volume: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(directory.parent)
    (share,) = shares_of(volume, link / "shares", read_only=False)
    prepare_shares([share])
    prepare_shares([share])
    assert len(list_mounts(directory)) == 1
    release_shares(link / "shares")
    assert (volume / "kept").read_text() == "kept\n"
    assert not directory.exists()


def test_a_volume_that_cannot_be_mounted_is_named(directory: Path, tmp_path: Path) -> None:
    (share,) = shares_of(tmp_path / "nowhere", directory, read_only=True)
    with pytest.raises(Unavailable, match=r"volume data at /in/guest: .*nowhere"):
        prepare_shares([share])
