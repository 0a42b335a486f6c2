"""Public names of this package: the other packages directly below `kubeletx` import them from here.

Submodules load on first use, so that code which needs one name, such as the child process of a plugin, does not load the
whole package. Names that are not listed here (`workloads`, `admission`, `model.sources`, most of `probes`) are imported
from their submodules.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .counters import Counters as Counters
    from .counters import static_label as static_label
    from .dependencies import Evacuation as Evacuation
    from .dependencies import PodDependencies as PodDependencies
    from .dependencies import Review as Review
    from .eviction.disks import DiskBoard as DiskBoard
    from .eviction.evictor import EvictedNode as EvictedNode
    from .eviction.evictor import EvictionPolicy as EvictionPolicy
    from .eviction.evictor import Evictor as Evictor
    from .eviction.host_shutdown import HostShutdown as HostShutdown
    from .eviction.host_shutdown import ShutdownLock as ShutdownLock
    from .eviction.volume_use import VolumeBoard as VolumeBoard
    from .executor import PodExecutor as PodExecutor
    from .logs.directories import PodDirectories as PodDirectories
    from .logs.file_watch import FileWatcher as FileWatcher
    from .logs.format import log_path as log_path
    from .logs.keeper import LogKeeper as LogKeeper
    from .logs.output import LogSelection as LogSelection
    from .logs.pod_files import PodFiles as PodFiles
    from .logs.reader import LogReader as LogReader
    from .logs.rotation import RotationLimits as RotationLimits
    from .manager import PodManager as PodManager
    from .model.facts import ActionFailure as ActionFailure
    from .model.facts import DesiredPod as DesiredPod
    from .model.facts import Now as Now
    from .model.facts import PodFacts as PodFacts
    from .model.facts import Rejection as Rejection
    from .model.facts import Waiting as Waiting
    from .model.frame import CONTAINER_CREATING as CONTAINER_CREATING
    from .model.frame import POD_INITIALIZING as POD_INITIALIZING
    from .model.node_context import NodeContext as NodeContext
    from .model.phase import FINAL as FINAL
    from .model.restart_policy import RESTART_ALL as RESTART_ALL
    from .model.restart_policy import should_restart as should_restart
    from .model.roles import UnitRole as UnitRole
    from .model.roles import all_units as all_units
    from .model.roles import ephemeral_units as ephemeral_units
    from .model.roles import init_units as init_units
    from .model.roles import regular_units as regular_units
    from .model.sizes import INFEASIBLE as INFEASIBLE
    from .plan.progress import has_ended as has_ended
    from .probes.all_probes import UnitProbes as UnitProbes
    from .probes.lifecycle_hooks import UnitHooks as UnitHooks
    from .probes.outcome import ProbeOutcome as ProbeOutcome
    from .records import POD_TABLES as POD_TABLES
    from .records import PodRecords as PodRecords
    from .recovery import UNKNOWN_SOURCE as UNKNOWN_SOURCE
    from .specs.extras import ExtrasProvider as ExtrasProvider
    from .specs.extras import UnitExtras as UnitExtras
    from .specs.host_facts import HostFacts as HostFacts
    from .specs.host_facts import read_host_facts as read_host_facts
    from .specs.resources import pod_cgroup_resources as pod_cgroup_resources
    from .specs.user_namespaces import UserNamespaces as UserNamespaces
    from .start_traces import StartTraces as StartTraces
    from .status.board import StatusBoard as StatusBoard
    from .status.build import NodeIdentity as NodeIdentity
    from .status.conditions import OURS as OURS
    from .status.end import end_of_unknown as end_of_unknown
    from .unit_images import UnitImages as UnitImages
    from .worker import PodWorker as PodWorker

_NAMES = {
    "counters": "Counters static_label",
    "dependencies": "Evacuation PodDependencies Review",
    "eviction.disks": "DiskBoard",
    "eviction.evictor": "EvictedNode EvictionPolicy Evictor",
    "eviction.host_shutdown": "HostShutdown ShutdownLock",
    "eviction.volume_use": "VolumeBoard",
    "executor": "PodExecutor",
    "logs.directories": "PodDirectories",
    "logs.file_watch": "FileWatcher",
    "logs.keeper": "LogKeeper",
    "logs.output": "LogSelection",
    "logs.format": "log_path",
    "logs.pod_files": "PodFiles",
    "logs.reader": "LogReader",
    "logs.rotation": "RotationLimits",
    "manager": "PodManager",
    "model.facts": "ActionFailure DesiredPod Now PodFacts Rejection Waiting",
    "model.frame": "CONTAINER_CREATING POD_INITIALIZING",
    "model.node_context": "NodeContext",
    "model.phase": "FINAL",
    "model.restart_policy": "RESTART_ALL should_restart",
    "model.roles": "UnitRole all_units ephemeral_units init_units regular_units",
    "model.sizes": "INFEASIBLE",
    "plan.progress": "has_ended",
    "probes.outcome": "ProbeOutcome",
    "probes.all_probes": "UnitProbes",
    "probes.lifecycle_hooks": "UnitHooks",
    "records": "POD_TABLES PodRecords",
    "recovery": "UNKNOWN_SOURCE",
    "specs.extras": "ExtrasProvider UnitExtras",
    "specs.host_facts": "HostFacts read_host_facts",
    "specs.resources": "pod_cgroup_resources",
    "specs.user_namespaces": "UserNamespaces",
    "start_traces": "StartTraces",
    "status.board": "StatusBoard",
    "status.build": "NodeIdentity",
    "status.conditions": "OURS",
    "status.end": "end_of_unknown",
    "unit_images": "UnitImages",
    "worker": "PodWorker",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
