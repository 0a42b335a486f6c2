"""Public names of this package: the other packages directly below `kubeletx` import them from here.

Submodules load on first use, so that code which needs one name, such as a CLI command, does not load the whole package.
Names that are not listed here (`workloads`, `admission`, `model.sources`, most of `probes`) are imported from their
submodules.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .counters import Counters, static_label
    from .dependencies import PodDependencies, Review
    from .eviction.disks import DiskBoard
    from .eviction.evictor import EvictedNode, EvictionPolicy, Evictor
    from .eviction.host_shutdown import HostShutdown
    from .eviction.volume_use import VolumeBoard
    from .executor import PodExecutor
    from .logs.directories import PodDirectories
    from .logs.file_watch import FileWatcher
    from .logs.keeper import LogKeeper
    from .logs.output import LogSelection
    from .logs.paths import log_path
    from .logs.pod_files import PodFiles
    from .logs.reader import LogReader
    from .logs.rotation import RotationLimits
    from .manager import PodManager
    from .model.facts import ActionFailure, DesiredPod, Now, PodFacts, Rejection, Waiting
    from .model.frame import CONTAINER_CREATING, POD_INITIALIZING
    from .model.node_context import NodeContext
    from .model.phase import FINAL
    from .model.restart_policy import RESTART_ALL, should_restart
    from .model.roles import UnitRole, all_units, ephemeral_units, init_units, regular_units
    from .model.sizes import INFEASIBLE
    from .plan.progress import has_ended, newest
    from .probes import ProbeOutcome
    from .probes.all_probes import UnitProbes
    from .probes.hook_runner import UnitHooks
    from .records import POD_TABLES, PodRecords
    from .recovery import UNKNOWN_SOURCE
    from .specs.extras import ExtrasProvider, UnitExtras
    from .specs.host_facts import HostFacts, read_host_facts
    from .specs.resources import pod_cgroup_resources
    from .specs.user_namespaces import UserNamespaces
    from .status.board import StatusBoard
    from .status.build import NodeIdentity
    from .status.conditions import OURS
    from .status.end import end_of_unknown
    from .unit_images import UnitImages
    from .worker import PodWorker

__all__ = [
    "CONTAINER_CREATING",
    "FINAL",
    "INFEASIBLE",
    "OURS",
    "POD_INITIALIZING",
    "POD_TABLES",
    "RESTART_ALL",
    "UNKNOWN_SOURCE",
    "ActionFailure",
    "Counters",
    "DesiredPod",
    "DiskBoard",
    "EvictedNode",
    "EvictionPolicy",
    "Evictor",
    "ExtrasProvider",
    "FileWatcher",
    "HostFacts",
    "HostShutdown",
    "LogKeeper",
    "LogReader",
    "LogSelection",
    "NodeContext",
    "NodeIdentity",
    "Now",
    "PodDependencies",
    "PodDirectories",
    "PodExecutor",
    "PodFacts",
    "PodFiles",
    "PodManager",
    "PodRecords",
    "PodWorker",
    "ProbeOutcome",
    "Rejection",
    "Review",
    "RotationLimits",
    "StatusBoard",
    "UnitExtras",
    "UnitHooks",
    "UnitImages",
    "UnitProbes",
    "UnitRole",
    "UserNamespaces",
    "VolumeBoard",
    "Waiting",
    "all_units",
    "end_of_unknown",
    "ephemeral_units",
    "has_ended",
    "init_units",
    "log_path",
    "newest",
    "pod_cgroup_resources",
    "read_host_facts",
    "regular_units",
    "should_restart",
    "static_label",
]

_HOMES = {
    "CONTAINER_CREATING": "model.frame",
    "Counters": "counters",
    "DesiredPod": "model.facts",
    "DiskBoard": "eviction.disks",
    "EvictedNode": "eviction.evictor",
    "EvictionPolicy": "eviction.evictor",
    "Evictor": "eviction.evictor",
    "ExtrasProvider": "specs.extras",
    "FINAL": "model.phase",
    "ActionFailure": "model.facts",
    "FileWatcher": "logs.file_watch",
    "HostFacts": "specs.host_facts",
    "HostShutdown": "eviction.host_shutdown",
    "INFEASIBLE": "model.sizes",
    "LogKeeper": "logs.keeper",
    "LogSelection": "logs.output",
    "LogReader": "logs.reader",
    "NodeContext": "model.node_context",
    "NodeIdentity": "status.build",
    "Now": "model.facts",
    "OURS": "status.conditions",
    "POD_INITIALIZING": "model.frame",
    "POD_TABLES": "records",
    "PodDependencies": "dependencies",
    "PodDirectories": "logs.directories",
    "PodExecutor": "executor",
    "PodFacts": "model.facts",
    "PodFiles": "logs.pod_files",
    "PodManager": "manager",
    "PodRecords": "records",
    "PodWorker": "worker",
    "RESTART_ALL": "model.restart_policy",
    "Rejection": "model.facts",
    "ProbeOutcome": "probes",
    "Review": "dependencies",
    "RotationLimits": "logs.rotation",
    "StatusBoard": "status.board",
    "UNKNOWN_SOURCE": "recovery",
    "UnitExtras": "specs.extras",
    "UnitHooks": "probes.hook_runner",
    "UnitImages": "unit_images",
    "UnitProbes": "probes.all_probes",
    "UnitRole": "model.roles",
    "UserNamespaces": "specs.user_namespaces",
    "VolumeBoard": "eviction.volume_use",
    "Waiting": "model.facts",
    "all_units": "model.roles",
    "end_of_unknown": "status.end",
    "ephemeral_units": "model.roles",
    "has_ended": "plan.progress",
    "init_units": "model.roles",
    "log_path": "logs.paths",
    "newest": "plan.progress",
    "pod_cgroup_resources": "specs.resources",
    "read_host_facts": "specs.host_facts",
    "regular_units": "model.roles",
    "should_restart": "model.restart_policy",
    "static_label": "counters",
}


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return found
