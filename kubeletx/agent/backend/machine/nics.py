"""Commands on the network interfaces of a virtual machine.

A command stores its request with the pod. The pod's worker carries the request out, also after a restart of the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kubeletx.api import Conflict, InvalidConfig, NicStatus, SupportsNics, UnitState, UnitSummary
from kubeletx.kube.types.core import Nic
from kubeletx.kube.validation import check_interfaces
from kubeletx.pods import ActionFailure, PodWorker
from kubeletx.pods.workloads.machine import results
from kubeletx.pods.workloads.machine.facts import machine_unit
from kubeletx.pods.workloads.machine.hardware import FIRST_NIC, nics_key, wanted_nics
from kubeletx.pods.workloads.machine.power import MACHINE_WORDS
from kubeletx.pods.workloads.overrides import PodOverrides
from kubeletx.server.views import NicRequest, NicView, PodTarget

from .access import MachineAccess

SETTLE_SECONDS = 10.0
"""Longest time for which a command waits until the pod's worker has carried out its request."""


class MachineNics:
    """Lists, attaches and detaches network interfaces of a virtual machine, for `MachineBackend`."""

    def __init__(self, access: MachineAccess) -> None:
        self._access = access
        self._services = access.services

    async def list(self, target: PodTarget) -> Sequence[NicView]:
        worker = await self._access.find(target)
        unit = self._access.alive(worker)
        handle, nics = self._access.capable(worker, SupportsNics, "list the interfaces of its units")
        attached = await handle.ask("list_nics", lambda: nics.list_nics(unit.id))
        present = {nic.name for nic in attached}
        wanted = wanted_nics(worker.desired, worker.facts)
        failures = machine_unit(worker.facts, unit.name).nic_failures
        missing = [
            _wanted_view(name, nic, failures.get(name))
            for name, nic in wanted.items()
            if name not in present and name != FIRST_NIC
        ]
        return [*map(_view, attached), *missing]

    async def attach(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        worker = await self._access.find(target)
        self._access.capable(worker, SupportsNics, "change the interfaces of its units")
        if not wanted.name:
            raise InvalidConfig(field="name", problem="is missing", fix="name the interface")
        present = wanted_nics(worker.desired, worker.facts)
        if wanted.name in present:
            raise Conflict(f"machine {target.ref} has an interface {wanted.name!r} already")
        nic = Nic(
            name=wanted.name,
            subnet_name=wanted.subnet_name,
            port_id=wanted.port_id,
            ip_address=wanted.ip_address,
            tag=wanted.tag,
            ipv6_enabled=wanted.ipv6_enabled,
        )
        check_interfaces(f"machine {target.ref}", (*present.values(), nic))
        await self._order(worker, added=nic)
        unit = self._access.find_unit(worker)
        if unit is None or unit.state is not UnitState.RUNNING:
            return [_later_view(worker, nic, unit)]
        await self._settle(worker, unit, lambda names: nic.name in names, nic.name or "")
        failure = self._failure(worker, unit, nic.name or "")
        if failure is not None and failure.retry_at is None:
            await self._order(worker, removed=nic.name or "")
            raise Conflict(
                f"cannot attach interface {nic.name} to machine {target.ref}: {failure.message}; correct it and attach the "
                "interface again",
                reason=failure.reason,
            )
        if failure is not None:
            raise Conflict(
                f"cannot attach interface {nic.name} to machine {target.ref}: {failure.message}; the agent tries again; to "
                f"stop it, run 'kubeletx vm nic detach {target.name} {nic.name}'",
                reason=failure.reason,
            )
        return await self.list(target)

    async def detach(self, target: PodTarget, name: str) -> Sequence[NicView]:
        worker = await self._access.find(target)
        self._access.capable(worker, SupportsNics, "change the interfaces of its units")
        if name == FIRST_NIC:
            raise Conflict(
                f"cannot detach interface {name} of machine {target.ref}: it belongs to the pod network; name another one"
            )
        if name in wanted_nics(worker.desired, worker.facts):
            await self._order(worker, removed=name)
        unit = self._access.find_unit(worker)
        if unit is None or unit.state is not UnitState.RUNNING:
            return ()
        await self._settle(worker, unit, lambda names: name not in names, name)
        failure = self._failure(worker, unit, name)
        if failure is not None and any(
            nic.name == name for nic in machine_unit(worker.facts, unit.name).nics or ()
        ):
            raise Conflict(
                f"cannot detach interface {name} of machine {target.ref}: {failure.message}; the agent tries again",
                reason=failure.reason,
            )
        return await self.list(target)

    async def _order(self, worker: PodWorker, *, added: Nic | None = None, removed: str = "") -> None:
        key = nics_key(worker.desired)
        in_spec = key.split(",")

        def change(overrides: PodOverrides) -> PodOverrides:
            if overrides.nics_spec != key:
                overrides = replace(overrides, nics_added=(), nics_removed=(), nics_spec=key)
            extra = tuple(nic for nic in overrides.nics_added if nic.name != removed)
            gone = tuple(
                nic_name for nic_name in overrides.nics_removed if added is None or nic_name != added.name
            )
            if removed in in_spec and removed:
                gone = (*gone, removed)
            if added is not None:
                extra = (*extra, added)
            return replace(overrides, nics_added=extra, nics_removed=gone)

        name = self._access.name(worker)
        if added is not None:
            worker.apply(results.NicRetried(name, added.name or ""))
        await self._services.overrides.amend(worker, change)
        if removed:  # not before `amend`: the worker would try the old request again
            worker.apply(results.NicRetried(name, removed))

    async def _settle(
        self, worker: PodWorker, unit: UnitSummary, is_there: Callable[[set[str]], bool], name: str
    ) -> None:
        """Wait until the pod's worker has attached or detached interface `name`, or failed; at most `SETTLE_SECONDS`.

        `is_there`: gets the names of the machine's interfaces; returns True if the change is done.
        """

        def is_settled() -> bool:
            known = machine_unit(worker.facts, unit.name)
            if self._failure(worker, unit, name) is not None:
                return True
            seen = None if known.nics is None or known.nics_stale else {nic.name for nic in known.nics}
            return seen is not None and is_there(seen)

        await self._access.wait(worker, is_settled, SETTLE_SECONDS)

    def _failure(self, worker: PodWorker, unit: UnitSummary, name: str) -> ActionFailure | None:
        return machine_unit(worker.facts, unit.name).nic_failures.get(name)


def _view(nic: NicStatus) -> NicView:
    return NicView(
        name=nic.name,
        state=nic.state.value,
        mac=nic.mac,
        network=nic.network,
        port_id=nic.port_id,
        ips=nic.ips,
        message=nic.message,
    )


def _wanted_view(name: str, nic: Nic, failure: ActionFailure | None) -> NicView:
    return NicView(
        name=name,
        state="wanted",
        network=nic.subnet_name or "",
        port_id=nic.port_id or "",
        message=failure.message if failure is not None else "",
    )


def _later_view(worker: PodWorker, nic: Nic, unit: UnitSummary | None) -> NicView:
    why = MACHINE_WORDS[unit.state] if unit is not None else MACHINE_WORDS[UnitState.CREATED]
    view = _wanted_view(nic.name or "", nic, None)
    return replace(view, message=f"machine {worker.desired.ref} is {why}; it is attached when it runs")
