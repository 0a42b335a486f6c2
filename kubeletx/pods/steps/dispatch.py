"""Table that maps each class of actions to its step, and to the result if the step raises an unexpected error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from ..model import actions as act
from ..model import results
from ..model.actions import Action
from ..model.facts import HookState
from ..model.results import Result
from ..workloads.machine import actions as machine
from ..workloads.machine import results as machine_results
from ..workloads.standby.actions import SetStandby
from ..workloads.standby.results import StandbyFailed
from .bind import bind, unbind
from .context import StepContext
from .files import drop_override, prepare_volumes, read_overrides, release_volumes, remove_directories
from .machine import attach_nic, detach_nic, list_nics, resize_unit, set_power
from .resize import resize_container, resize_pod
from .sandbox import create_sandbox, look, remove_sandbox, stop_sandbox
from .standby import set_standby
from .start import ensure_image, run_post_start, start_unit
from .stop import evacuate, read_message, remove_unit, stop_unit


class Row(msgspec.Struct, frozen=True):
    """Table entry for one class of actions. `step`: carries out an action.

    `failure`: makes the result if the step raised an unexpected error, from the action, a reason and a message.
    """

    step: Callable[[StepContext, Any], Awaitable[Result]]
    failure: Callable[[Any, str, str], Result]


def _stop(_: Action, reason: str, message: str) -> Result:
    return results.StopFailed(reason, message)


def _overrides(_: Action, reason: str, message: str) -> Result:
    return results.OverridesFailed(reason, message)


def _resize(action: act.ResizeContainer | machine.ResizeUnit, reason: str, message: str) -> Result:
    return results.ResizeFailed(action.name, reason, message)


ROWS: Final[Mapping[type[Action], Row]] = {
    act.Bind: Row(lambda step, _: bind(step), lambda _, *why: results.BindFailed(*why)),
    act.Look: Row(lambda step, _: look(step), lambda *_: results.LookFailed()),
    act.PrepareVolumes: Row(
        lambda step, _: prepare_volumes(step), lambda _, *why: results.VolumesFailed(*why)
    ),
    act.EnsureImage: Row(ensure_image, lambda a, *why: results.ImageFailed(a.name, *why)),
    act.CreateSandbox: Row(
        lambda step, a: create_sandbox(step, a.attempt), lambda _, *why: results.SandboxFailed(*why)
    ),
    act.StartUnit: Row(
        start_unit, lambda a, reason, text: results.UnitFailed(a.name, reason, text, created=False)
    ),
    act.RunPostStart: Row(
        run_post_start,
        lambda a, _, message: results.HookNoted(a.name, a.unit_id, HookState.FAILED, message),
    ),
    act.Evacuate: Row(evacuate, lambda *_: results.Evacuated()),
    act.ReadMessage: Row(read_message, lambda a, *_: results.MessageRead(a.name, a.unit_id, "")),
    act.StopUnit: Row(stop_unit, _stop),
    act.ReadOverrides: Row(lambda step, _: read_overrides(step), _overrides),
    act.DropOverride: Row(lambda step, _: drop_override(step), _overrides),
    act.ResizeContainer: Row(resize_container, _resize),
    act.ResizePod: Row(resize_pod, lambda _, *why: results.PodResizeFailed(*why)),
    act.RemoveUnit: Row(remove_unit, _stop),
    act.StopSandbox: Row(stop_sandbox, _stop),
    act.RemoveSandbox: Row(lambda step, a: remove_sandbox(step, a.sandbox_id), _stop),
    act.ReleaseVolumes: Row(
        lambda step, _: release_volumes(step), lambda _, *why: results.ReleaseFailed(*why)
    ),
    act.RemoveDirectories: Row(lambda step, _: remove_directories(step), _stop),
    act.Unbind: Row(lambda step, _: unbind(step), _stop),
    machine.SetPower: Row(set_power, lambda a, *why: machine_results.PowerFailed(a.name, *why)),
    machine.ListNics: Row(list_nics, lambda a, *why: machine_results.NicsUnlisted(a.name, *why)),
    machine.AttachNic: Row(
        attach_nic, lambda a, *why: machine_results.NicFailed(a.name, a.nic.name or "", *why)
    ),
    machine.DetachNic: Row(detach_nic, lambda a, *why: machine_results.NicFailed(a.name, a.nic_name, *why)),
    machine.ResizeUnit: Row(resize_unit, _resize),
    SetStandby: Row(set_standby, lambda a, *why: StandbyFailed(a.name, a.step, *why)),
}
"""Table entries by class of action; a test checks that every action has one."""


async def carry_out(step: StepContext, action: Action) -> Result:
    """Carry out the action with its step from the table, and return the result."""
    return await ROWS[type(action)].step(step, action)


def failed(action: Action, reason: str, message: str) -> Result:
    """Return the result of an action whose step raised an unexpected error."""
    return ROWS[type(action)].failure(action, reason, message)
