"""`AgentConfig`: settings of the storage agent, from its options. `check_config` names every invalid one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import InvalidConfig, KubeletxError
from kubeletx.api.records import check_record_name

from ..backends.pools import Pool
from ..driver.program import CALL_SECONDS
from .operations import LAST_STEP_SECONDS

DEFAULT_STATE_DIR: Final = Path("/var/lib/kubeletx-storage")
DEFAULT_KUBELET_ROOT: Final = Path("/var/lib/kubelet")
DEFAULT_MOUNT_SECONDS: Final = 110.0
"""Shorter than the two minutes for which a kubelet waits for the volumes of a pod, so that it gets the reason."""
DEFAULT_UNMOUNT_SECONDS: Final = 110.0
MAX_SECONDS: Final = CALL_SECONDS - LAST_STEP_SECONDS - 10
"""Longest deadline of a call: the driver's own is longer."""
MIN_SECONDS: Final = 1.0

_POOL_NAME: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z._]{0,62}")
_RESOURCE: Final = re.compile(r"[a-z0-9][-a-z0-9.]*/[a-z0-9]+/[a-z0-9][-a-z0-9]*")
_SHARED: Final = ",shared"
_NETWORK: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "glusterfs", "fuse.glusterfs", "ocfs2", "gfs2", "lustre")
)
"""File systems that other machines reach, too."""


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one agent; an option for each. `mount_namespace_of` None: the namespace of the agent.

    `boot_id`: of the kernel; another one is only given by tests. `fs_group` kubelet: the kubelet applies the fsGroup.
    """

    node_name: str
    boot_id: str
    volume_plugin_dirs: tuple[Path, ...] = ()
    use_known_plugin_dirs: bool = True
    kubelet_root_dirs: tuple[Path, ...] = (DEFAULT_KUBELET_ROOT,)
    state_dir: Path = DEFAULT_STATE_DIR
    pools: tuple[Pool, ...] = ()
    mount_namespace_of: int | None = None
    mount_seconds: float = DEFAULT_MOUNT_SECONDS
    unmount_seconds: float = DEFAULT_UNMOUNT_SECONDS
    storage_kubeconfig: Path | None = None
    records: Path | None = None
    break_policy: str = "safe"
    fs_group: str = "kubelet"
    selinux_relabel: bool = False
    lease_namespace: str = "kubeletx-storage"
    cluster_resources: tuple[str, ...] = ("storage.kubeletx.io/v1alpha1/storageclusters",)


def parse_pool(text: str) -> Pool:
    """Return the pool of an option NAME=DIRECTORY[,shared]. Raises InvalidConfig."""
    name, equals, directory = text.partition("=")
    is_shared = directory.endswith(_SHARED)
    directory = directory.removesuffix(_SHARED)
    if not equals or not _POOL_NAME.fullmatch(name) or not directory.startswith("/"):
        raise _bad(
            "--pool",
            f"{text!r} is not NAME=DIRECTORY",
            "give a name and an absolute path, as in fast=/srv/fast",
        )
    return Pool(name=name, directory=os.path.normpath(directory), is_shared=is_shared)


def is_network_file_system(fs_type: str) -> bool:
    """Return True for network file systems: the pool counts as shared even without ``,shared``."""
    return fs_type in _NETWORK


def check_config(config: AgentConfig) -> AgentConfig:
    """Return the configuration, completed. Raises InvalidConfig, with all problems in one message."""
    problems = [*_path_problems(config), *_pool_problems(config.pools), *_time_problems(config)]
    try:
        check_record_name(config.node_name, "node")
    except KubeletxError as error:
        problems.append(f"--node-name: {error}")
    if config.storage_kubeconfig is not None and config.records is not None:
        problems.append("--records: --storage-kubeconfig is given, too; give one of them")
    problems += _resource_problems(config.cluster_resources)
    if config.mount_namespace_of is not None and config.mount_namespace_of < 1:
        problems.append(f"--mount-namespace-of: {config.mount_namespace_of} is not a PID")
    if problems:
        raise InvalidConfig(
            obj="storage agent", field="", problem="; ".join(problems), fix="correct the options"
        )
    if config.storage_kubeconfig is None and config.records is None:
        return msgspec.structs.replace(config, records=config.state_dir / "records" / "records.db")
    return config


def _path_problems(config: AgentConfig) -> list[str]:
    found = []
    for option, paths in (
        ("--volume-plugin-dir", config.volume_plugin_dirs),
        ("--kubelet-root-dir", config.kubelet_root_dirs),
        ("--state-dir", (config.state_dir,)),
        ("--records", () if config.records is None else (config.records,)),
    ):
        found += [f"{option}: {str(path)!r} is not absolute" for path in paths if not path.is_absolute()]
        found += [f"{option}: {str(path)!r} contains '..'" for path in paths if ".." in path.parts]
    if not config.kubelet_root_dirs:
        found.append("--kubelet-root-dir: none is given")
    return found


def _pool_problems(pools: Sequence[Pool]) -> list[str]:
    names = [pool.name for pool in pools]
    found = [f"--pool: {name} is given twice" for name in sorted(set(names)) if names.count(name) > 1]
    return found + [
        f"--pool: {pool.directory} of {pool.name} is not a directory"
        for pool in pools
        if not Path(pool.directory).is_dir()
    ]


def _resource_problems(resources: Sequence[str]) -> list[str]:
    return [
        f"--cluster-resource: {one!r} is not GROUP/VERSION/PLURAL"
        for one in resources
        if not _RESOURCE.fullmatch(one)
    ]


def _time_problems(config: AgentConfig) -> list[str]:
    return [
        f"{option}: {seconds:g} is not between {MIN_SECONDS:g} and {MAX_SECONDS:g} seconds"
        for option, seconds in (
            ("--mount-timeout", config.mount_seconds),
            ("--unmount-timeout", config.unmount_seconds),
        )
        if not MIN_SECONDS <= seconds <= MAX_SECONDS
    ]


def _bad(field: str, problem: str, fix: str) -> InvalidConfig:
    return InvalidConfig(obj="storage agent", field=field, problem=problem, fix=fix)
