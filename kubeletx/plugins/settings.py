"""`PluginLimits`: the settings that this room reads; the agent's configuration has their keys, flags and defaults."""

from __future__ import annotations

import msgspec


class PluginLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of plugins. Deadlines of calls to runtimes are in `RuntimeSettings` of the agent.

    `disabled`: names of plugins, or of their distributions, that are not imported. `variables`: names of environment
    variables that processes of plugins get in addition to the usual ones. `pod_source_sync_seconds`: a pod source that has not
    delivered all its pods within this time is reported as degraded. `volume_seconds`: deadline of a volume driver's
    preparation, release or expansion of one volume. `stall_seconds`: time for which the plugin of a runtime may block the
    agent. `stall_action`: what the agent does then: ``restart`` (it ends, and its next start isolates the runtime) or
    ``log``. `memory_limit_bytes`, `process_limit`, `cpu_weight`: of the child process of one distribution, with all
    processes that it starts; the weight is cgroup v2's, 100 the kernel's default.
    """

    disabled: tuple[str, ...]
    variables: tuple[str, ...]
    health_check_seconds: float
    admission_check_seconds: float
    pod_source_sync_seconds: float
    panel_seconds: float
    volume_seconds: float
    stall_seconds: float
    stall_action: str
    memory_limit_bytes: int
    process_limit: int
    cpu_weight: int
