"""Backends by name, and the ones that an agent has."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_flexvolume.agent.commands import Commands
from kubeletx_flexvolume.backends.backend import Backend
from kubeletx_flexvolume.backends.identify import Identifies
from kubeletx_flexvolume.backends.pools import Pool
from kubeletx_flexvolume.backends.registry import BackendParts, Backends, build_backends

from kubeletx.api import InvalidConfig
from kubeletx.testing import FakeClock
from plugins.flexvolume.tests.agent.agent_model import at_once
from plugins.flexvolume.tests.backends.backend_model import BOOT, mount, volume

NAMES = {"directory", "fuse", "loop", "nbd", "nfs", "rbd"}


@pytest.fixture
def backends(tmp_path: Path, commands: Commands, pool: Path) -> Backends:
    return build_backends(
        BackendParts(
            pools={"default": Pool(name="default", directory=str(pool))},
            commands=commands,
            clock=FakeClock(),
            blocking=at_once,
            boot_id=BOOT,
            state_directory=tmp_path / "state",
            table=lambda: (mount(target="/"),),
        )
    )


def test_every_backend_has_a_name_and_nothing_is_made_on_disk(backends: Backends, tmp_path: Path) -> None:
    assert backends.by_name().keys() == NAMES
    assert not (tmp_path / "state").exists()


def test_an_unknown_backend_is_refused_with_the_known_ones(backends: Backends) -> None:
    with pytest.raises(
        InvalidConfig, match=r"'ceph' is unknown; use one of directory, fuse, loop, nbd, nfs, rbd"
    ):
        backends.get("ceph")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("loop", set()),
        ("directory", set()),
        ("fuse", set()),
        ("nfs", {"server", "share"}),
        ("rbd", {"monitors", "user"}),
        ("nbd", {"server", "port"}),
        ("ceph", set()),
    ],
)
def test_a_backend_has_options_of_its_own(backends: Backends, name: str, parameters: set[str]) -> None:
    assert backends.parameters_of(name) == parameters


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_backend_has_the_methods_of_the_protocol(backends: Backends, name: str) -> None:
    one = backends.get(name)
    methods = [method for method in vars(Backend) if not method.startswith("_")]
    assert set(methods) == {"attach", "find", "detach", "fence"}
    assert all(callable(getattr(one, method)) for method in [*methods, "check"])
    assert isinstance(one, Identifies) == (name != "nbd")  # sysfs does not show the export of an nbd device


def test_a_mount_is_recognized_by_the_backend_that_knows_it(backends: Backends, pool: Path) -> None:
    shown = backends.identify("pv-1", mount(target="/kubelet/m", root=f"{pool}/data"))
    assert shown == volume("directory")
    shown = backends.identify("pv-1", mount("nas:/export/data", fs_type="nfs4"))
    assert shown is not None
    assert shown.backend == "nfs"
    assert backends.identify("pv-1", mount("tmpfs", fs_type="tmpfs", device="0:99")) is None
