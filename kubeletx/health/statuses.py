"""Statuses that the guardian publishes, from its state. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .config import HealthSettings
from .maintenance import Maintenance
from .model import CheckState, NodeBoot, OperationKind, Slot, SlotTable
from .operations import OperationStep, waits
from .state import Memory, RunState
from .topics import HealthStatus, NodeAgentStatus, ZbootConfig, ZbootStatus
from .validation import Phase, failed_checks, remaining_seconds


def node_agent_status(
    run: RunState,
    memory: Memory,
    table: SlotTable | None,
    settings: HealthSettings,
    maintenance: Maintenance,
    *,
    waits_for_drain: bool,
) -> NodeAgentStatus:
    """Return the state of the node; while an operation is under way, its reason stands for that of the present boot."""
    operation, boot = run.operation, memory.last_boot
    begun = operation.kind if operation is not None and operation.step is not OperationStep.WAITING else None
    return NodeAgentStatus(
        cur_part=table.current_label if table else "",
        update_inprogress=run.validation.phase in {Phase.TESTING, Phase.COMMITTING, Phase.FALLING_BACK},
        remaining_test_time=remaining_seconds(run.validation, settings),
        device_reboot=begun is OperationKind.REBOOT,
        device_shutdown=begun is OperationKind.SHUTDOWN,
        device_poweroff=begun is OperationKind.POWEROFF,
        all_domains_halted=operation is not None and operation.all_halted,
        reboot_reason=operation.reason if operation else boot.reason,
        boot_reason=operation.boot_reason if operation else boot.boot_reason,
        reboot_stack=boot.stack,
        reboot_image=boot.image,
        reboot_time=boot.time,
        restart_counter=memory.restart_counter,
        local_maintenance_mode=maintenance.is_on,
        local_maintenance_mode_reasons=maintenance.reasons,
        wait_drain_in_progress=waits_for_drain,
    )


def held_operation(run: RunState) -> str:
    """Return why an operation does not begin yet; empty: it has begun, or there is none."""
    if not waits(run.operation):
        return ""
    return "an image is being tested" if run.validation.phase is Phase.TESTING else run.drain.held_by


def health_status(
    run: RunState,
    now: int,
    settings: HealthSettings,
    checks: Sequence[CheckState],
    boots: tuple[NodeBoot, ...],
    maintenance: Maintenance,
) -> HealthStatus:
    """Return the verdict, with a reason for each part of it."""
    operation, validation, contact = run.operation, run.validation, run.contact
    return HealthStatus(
        phase=validation.phase,
        operation=f"{operation.kind} {operation.step}" if operation else "",
        operation_held_by=held_operation(run),
        held_by=validation.held_by,
        remaining_test_time=remaining_seconds(validation, settings),
        contact=contact.reach,
        contact_source=contact.source,
        silent_seconds=contact.silent_seconds(now),
        is_healthy=not failed_checks(checks),
        drain_request=run.drain.request,
        drain=run.drain.reason,
        checks=tuple(checks),
        boots=boots,
        maintenance_mode=maintenance.is_on,
        maintenance_reasons=maintenance.reasons,
    )


def zboot_config(slot: Slot, commit: str) -> ZbootConfig:
    """Return the guardian's word on a slot. `commit`: label of the image whose commit is under way."""
    return ZbootConfig(partition_label=slot.label, test_complete=slot.label == commit)


def zboot_status(slot: Slot, table: SlotTable, commit: str) -> ZbootStatus:
    """Return the state of a slot."""
    return ZbootStatus(
        partition_label=slot.label,
        partition_devname=slot.device,
        partition_state=slot.state,
        short_version=slot.version,
        long_version=slot.version,
        current_partition=slot.label == table.current_label,
        test_complete=slot.label == commit,
    )
