"""From an action to the step that carries it out."""

from __future__ import annotations

from ..model import actions as act
from ..model.changes import Change
from .bind import bind, unbind
from .context import StepContext
from .devices import attach_nic, detach_nic, list_nics, resize_unit
from .directories import remove_directories
from .ensure_image import ensure_image
from .look import look
from .orders import drop_override, read_orders
from .post_start import run_post_start
from .read_message import read_message
from .resize import resize_container, resize_pod
from .sandbox import create_sandbox, remove_sandbox, stop_sandbox
from .set_power import set_power
from .start_unit import start_unit
from .stop_unit import remove_unit, stop_unit
from .volumes import prepare_volumes, release_volumes


async def carry_out(step: StepContext, action: act.Action) -> Change:
    """Do it and say what it changed."""
    match action:
        case act.Bind():
            return await bind(step)
        case act.Look():
            return await look(step)
        case act.PrepareVolumes():
            return await prepare_volumes(step)
        case act.EnsureImage():
            return await ensure_image(step, action)
        case act.CreateSandbox(attempt=attempt):
            return await create_sandbox(step, attempt)
        case act.StartUnit():
            return await start_unit(step, action)
        case act.RunPostStart():
            return await run_post_start(step, action)
        case act.ReadMessage():
            return await read_message(step, action)
        case act.StopUnit():
            return await stop_unit(step, action)
        case act.ReadOrders():
            return await read_orders(step)
        case act.DropOverride():
            return await drop_override(step)
        case act.SetPower():
            return await set_power(step, action)
        case act.ListNics():
            return await list_nics(step, action)
        case act.AttachNic():
            return await attach_nic(step, action)
        case act.DetachNic():
            return await detach_nic(step, action)
        case act.ResizeUnit():
            return await resize_unit(step, action)
        case act.ResizeContainer():
            return await resize_container(step, action)
        case act.ResizePod():
            return await resize_pod(step, action)
        case act.RemoveUnit():
            return await remove_unit(step, action)
        case act.StopSandbox():
            return await stop_sandbox(step, action)
        case act.RemoveSandbox(sandbox_id=sandbox_id):
            return await remove_sandbox(step, sandbox_id)
        case act.ReleaseVolumes():
            return await release_volumes(step)
        case act.RemoveDirectories():
            return await remove_directories(step)
        case act.Unbind():
            return await unbind(step)
    raise TypeError(f"no step for {type(action).__name__}")
