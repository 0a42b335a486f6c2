"""Steps for a running machine: list, attach and detach its network interfaces, and change its size."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from kubeletx.api import InvalidPod, KubeletxError, SupportsNics, SupportsResize, Unsupported
from kubeletx.api.names import RUNTIME_UNSUPPORTED, Event

from ...call_errors import after_error, level_of
from ...model.results import Resized, Result
from ...model.sizes import INFEASIBLE
from ..step import WorkloadStep
from . import results
from .actions import AttachNic, DetachNic, ListNics, ResizeUnit
from .hardware import sized_pod
from .spec import build_nic

log = structlog.get_logger(__name__)


async def list_nics(step: WorkloadStep, action: ListNics) -> Result:
    """Query the runtime for the machine's network interfaces."""
    try:
        found = await step.handle.ask("list_nics", lambda: _nics(step).list_nics(action.unit_id))
    except KubeletxError as error:
        level_of(error, log)("Failed to list interfaces", pod=step.desired.ref, err=str(error))
        return results.NicsUnlisted(action.name, Event.FAILED_NIC, str(error))
    return results.NicsSeen(action.name, action.unit_id, tuple(found))


async def attach_nic(step: WorkloadStep, action: AttachNic) -> Result:
    """Attach a network interface to the machine.

    A failure, such as a network port that does not exist yet, is retried unless the runtime does not support the
    interface.
    """
    nic = build_nic(action.nic)
    try:
        await step.handle.change("attach_nic", lambda: _nics(step).attach_nic(action.unit_id, nic))
    except KubeletxError as error:
        return _nic_failed(step, action.name, nic.name, "attach", error)
    step.normal(Event.NIC_ATTACHED, f"Attached interface {nic.name} to {action.name}", container=action.name)
    return results.NicsChanged(action.name, nic.name)


async def detach_nic(step: WorkloadStep, action: DetachNic) -> Result:
    """Request that a network interface is detached; the guest has to release it, so this may complete later."""
    try:
        await step.handle.change(
            "detach_nic", lambda: _nics(step).detach_nic(action.unit_id, action.nic_name)
        )
    except KubeletxError as error:
        return _nic_failed(step, action.name, action.nic_name, "detach", error)
    step.normal(
        Event.NIC_DETACHED, f"Detached interface {action.nic_name} from {action.name}", container=action.name
    )
    return results.NicsChanged(action.name, action.nic_name)


async def resize_unit(step: WorkloadStep, action: ResizeUnit) -> Result:
    """Request the new size of the machine from its runtime, and store the request in the pod's overrides.

    The machine's status shows later which size the runtime granted.
    """
    handle = step.handle
    try:
        able: SupportsResize | None = handle.capability(SupportsResize)
        if able is None:
            raise Unsupported(f"runtime {handle.name} cannot resize its units")
        step.count(sized_pod(step.desired, step.facts))
        resources = step.resources(action.name)
        await handle.change("update_resources", lambda: able.update_resources(action.unit_id, resources))
        await step.amend(
            lambda overrides: replace(overrides, size_asked=action.size, size_unit=action.unit_id)
        )
        handle.note_unit(await handle.unit_status(action.unit_id))
    except KubeletxError as error:
        never = isinstance(error, (Unsupported, InvalidPod))
        otherwise = INFEASIBLE if never else Event.FAILED_RESIZE
        return step.resize_failed(action.name, error, otherwise, may_heal=not never)
    step.normal(
        Event.MACHINE_RESIZED, f"Asked machine {action.name} to become {action.size}", container=action.name
    )
    return Resized(action.name)


def _nics(step: WorkloadStep) -> SupportsNics:
    found: SupportsNics | None = step.handle.capability(SupportsNics)
    if found is None:
        raise Unsupported(f"runtime {step.handle.name} cannot change interfaces")
    return found


def _nic_failed(step: WorkloadStep, name: str, nic: str, verb: str, error: KubeletxError) -> Result:
    is_refused = isinstance(error, InvalidPod) and error.reason == RUNTIME_UNSUPPORTED
    may_heal = not (is_refused or isinstance(error, Unsupported))
    again = "" if may_heal else "; it is not tried again before the pod or the order changes"
    text = f"Failed to {verb} interface {nic}: {error}{again}"
    step.warning(Event.FAILED_NIC, text, container=name)
    level_of(error, log)(
        "Failed to change interfaces", pod=step.desired.ref, interface=nic, verb=verb, err=str(error)
    )
    failed = results.NicFailed(name, nic, Event.FAILED_NIC, str(error), may_heal=may_heal)
    return after_error(error, step.now(), failed)
