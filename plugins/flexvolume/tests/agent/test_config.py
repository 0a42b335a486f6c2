"""Options of the agent: each problem is named with its option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from kubeletx_flexvolume.agent.config import AgentConfig, check_config, is_network_file_system, parse_pool
from kubeletx_flexvolume.backends.pools import Pool

from kubeletx.api import InvalidConfig

CONFIG = AgentConfig(node_name="n1", boot_id="b")


def changed(**changes: Any) -> AgentConfig:
    return msgspec.structs.replace(CONFIG, **changes)


def test_the_defaults_are_valid_and_the_records_are_below_the_state_directory() -> None:
    assert check_config(CONFIG).records == Path("/var/lib/kubeletx-storage/records/records.db")
    assert check_config(changed(state_dir=Path("/s"))).records == Path("/s/records/records.db")
    assert check_config(changed(storage_kubeconfig=Path("/k"))).records is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node_name": "Node A"}, "--node-name"),
        ({"state_dir": Path("state")}, "--state-dir: 'state' is not absolute"),
        ({"kubelet_root_dirs": ()}, "--kubelet-root-dir: none is given"),
        ({"kubelet_root_dirs": (Path("/a/../b"),)}, "--kubelet-root-dir: '/a/../b' contains '..'"),
        ({"volume_plugin_dirs": (Path("x"),)}, "--volume-plugin-dir: 'x' is not absolute"),
        ({"mount_seconds": 0.5}, "--mount-timeout: 0.5 is not between 1 and 140 seconds"),
        ({"unmount_seconds": 1e9}, "--unmount-timeout"),
        ({"mount_namespace_of": 0}, "--mount-namespace-of: 0 is not a PID"),
        (
            {"records": Path("/r"), "storage_kubeconfig": Path("/k")},
            "--records: --storage-kubeconfig is given",
        ),
        ({"records": Path("records.db")}, "--records: 'records.db' is not absolute"),
        ({"cluster_resources": ("cephclusters",)}, "--cluster-resource: 'cephclusters' is not GROUP/VERSION"),
        ({"pools": (Pool(name="a", directory="/missing"),)}, "--pool: /missing of a is not a directory"),
        (
            {"pools": (Pool(name="a", directory="/"), Pool(name="a", directory="/"))},
            "--pool: a is given twice",
        ),
    ],
)
def test_what_is_invalid_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        check_config(changed(**changes))
    assert words in str(caught.value)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        check_config(changed(node_name="", mount_seconds=0.0))
    assert "--node-name" in str(caught.value)
    assert "--mount-timeout" in str(caught.value)


def test_a_pool_has_a_name_and_a_directory() -> None:
    assert parse_pool("fast=/srv/fast/") == Pool(name="fast", directory="/srv/fast")
    assert parse_pool("nfs=/mnt/x,shared") == Pool(name="nfs", directory="/mnt/x", is_shared=True)


@pytest.mark.parametrize("text", ["", "fast", "=/x", "fast=x", "-x=/x", "a/b=/x", "fast=/x,shared,shared2"])
def test_other_pools_are_refused(text: str) -> None:
    if text.endswith("shared2"):
        assert parse_pool(text).directory == "/x,shared,shared2"  # a directory may have such a name
        return
    with pytest.raises(InvalidConfig, match="--pool"):
        parse_pool(text)


def test_network_file_systems_are_known() -> None:
    assert is_network_file_system("nfs4")
    assert not is_network_file_system("ext4")
