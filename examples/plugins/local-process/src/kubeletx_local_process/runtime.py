"""The runtime: the contract's verbs on processes. Specs are kept in files, since a process holds no labels."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from signal import Signals
from typing import Any

from kubeletx import api

from .processes import Child


class ProcessRuntime(api.BaseRuntime):
    """A `kubeletx.api.Runtime`; its capabilities are events, exec and stats."""

    declared = api.Traits(
        log_mode=api.LogMode.RAW_FILE,
        images=False,
        brings_pod_network=False,
        refuses=api.every_feature_but("host-network", "host-pid", "host-ipc", "several-units", "stop-signal"),
    )
    capabilities = (api.SupportsEvents, api.SupportsExec, api.SupportsStats)

    def __init__(self, endpoint: api.Endpoint, settings: Any, host: api.Host) -> None:
        """The shape of every factory: no I/O here."""
        super().__init__(endpoint, settings, host)
        self._files = api.SpecFiles(host)
        self._follower = api.UnitFollower()

    async def open(self) -> None:
        """Find the directories again and follow what runs."""
        self._files.open()
        for unit in self._files.units():
            if Child(unit.path).supervisor() is not None:
                self._follow(unit)

    async def close(self) -> None:
        """Stop following; the processes go on."""
        await self._follower.close()

    async def version(self) -> api.RuntimeVersion:
        """The word before ``://`` in containerID is ``process``."""
        return api.RuntimeVersion(name="process", version="0.1.0")

    async def create_sandbox(self, spec: api.SandboxSpec) -> api.SandboxId:
        """Processes need no shell around them: it is enough to write the pod down."""
        return await self._files.add_sandbox(spec)

    async def stop_sandbox(self, sandbox_id: api.SandboxId) -> None:
        """Kill what runs in it."""
        await asyncio.gather(*(self.stop_unit(unit.id, 0) for unit in self._files.units(sandbox_id)))
        self._files.stop_sandbox(sandbox_id)

    async def remove_sandbox(self, sandbox_id: api.SandboxId) -> None:
        """Kill what runs in it, then forget it with its units."""
        await self.stop_sandbox(sandbox_id)
        await self._files.remove_sandbox(sandbox_id)

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[api.SandboxSummary]:
        """Filtered by labels, as every list."""
        return api.matching([sandbox.status().summary for sandbox in self._files.sandboxes()], match)

    async def sandbox_status(self, sandbox_id: api.SandboxId) -> api.SandboxStatus:
        """Host network, so no address of its own."""
        return self._files.sandbox(sandbox_id).status()

    async def create_unit(
        self, sandbox_id: api.SandboxId, spec: api.UnitSpec, sandbox: api.SandboxSpec
    ) -> api.UnitId:
        """Write it down, if it can be started."""
        process_of(spec)
        return await self._files.add_unit(sandbox_id, spec)

    async def start_unit(self, unit_id: api.UnitId) -> None:
        """Start the process unless that was done before."""
        unit = self._files.unit(unit_id)
        process = process_of(unit.spec)
        await Child(unit.path).start(
            *(*process.command, *process.args),
            environment=environment_of(unit.spec),
            directory=process.working_dir or "/",
            log=str(unit.log_file or "/dev/null"),
        )
        self._follow(unit)

    async def stop_unit(self, unit_id: api.UnitId, grace_seconds: float) -> None:
        """Signal the process and its children."""
        with suppress(api.NotFound):
            unit = self._files.unit(unit_id)
            child, asked = Child(unit.path), Signals[process_of(unit.spec).stop_signal or "SIGTERM"]
            await api.stop_with_grace(
                ask=lambda: child.send(asked),
                kill=lambda: child.send(Signals.SIGKILL),
                wait=child.wait,
                grace_seconds=grace_seconds,
            )

    async def remove_unit(self, unit_id: api.UnitId) -> None:
        """Forget it; kills first what should have ended."""
        await self.stop_unit(unit_id, 0)
        await self._files.remove_unit(unit_id)

    async def list_units(self, match: Mapping[str, str]) -> Sequence[api.UnitSummary]:
        """Filtered by labels, as every list."""
        return api.matching([status_of(unit).summary for unit in self._files.units()], match)

    async def unit_status(self, unit_id: api.UnitId) -> api.UnitStatus:
        """Read from the unit's directory and /proc."""
        return status_of(self._files.unit(unit_id))

    def events(self) -> AsyncIterator[api.RuntimeEvent]:
        """Starts and ends of processes."""
        return self._follower.events()

    async def exec(self, unit_id: api.UnitId, request: api.StreamRequest) -> api.Session:
        """Start a command with the unit's variables and working directory. Raises Conflict unless the unit runs."""
        unit = self._files.unit(unit_id)
        if status_of(unit).summary.state is not api.UnitState.RUNNING:
            raise api.Conflict(f"unit {unit_id} does not run; start it before exec")
        directory = process_of(unit.spec).working_dir or "/"
        return await api.SubprocessSession.start(
            request, environment=environment_of(unit.spec), directory=directory
        )

    async def exec_sync(
        self, unit_id: api.UnitId, command: Sequence[str], timeout_seconds: float
    ) -> api.ExecResult:
        """Run a command to its end; used by probes and hooks."""
        session = await self.exec(unit_id, api.StreamRequest(command=tuple(command)))
        return await api.run_session(session, timeout_seconds)

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[api.UnitStats]:
        """Measure the units that run. What is not measured stays None."""
        running = [unit for unit in self._files.units() if match.items() <= unit.spec.labels.items()]
        return await self.host.blocking(lambda: [stats for unit in running if (stats := stats_of(unit))])

    def _follow(self, unit: api.UnitRecord) -> None:
        self._follower.follow(unit.id, unit.sandbox.id, unit.sandbox.spec.uid, Child(unit.path).wait)


def process_of(spec: api.UnitSpec) -> api.Process:
    """Return the program to run. Raises InvalidPod."""
    if isinstance(spec.detail, api.Process) and (spec.detail.command or spec.detail.args):
        return spec.detail
    raise api.InvalidPod(field=f"container {spec.name}", problem="no command", fix="write the program to run")


def status_of(unit: api.UnitRecord) -> api.UnitStatus:
    """State and reason follow from how far its life has come."""
    return unit.status(**Child(unit.path).life()._asdict())


def environment_of(spec: api.UnitSpec) -> dict[str, str]:
    """Return the variables of the unit; none of the agent's own."""
    return {"PATH": os.defpath, "HOME": "/"} | {env.name: env.value for env in spec.environment}


def stats_of(unit: api.UnitRecord) -> api.UnitStats | None:
    """Measure one unit; None unless it runs."""
    child = Child(unit.path)
    if child.supervisor() is None or (usage := child.usage()) is None:
        return None
    return api.UnitStats(
        id=unit.id,
        uid=unit.sandbox.spec.uid,
        name=unit.spec.name,
        at_ns=time.time_ns(),
        cpu_usage_core_ns=usage.cpu_ns,
        memory_working_set_bytes=usage.memory_bytes,
        memory_rss_bytes=usage.memory_bytes,
    )
