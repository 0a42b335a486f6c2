"""Reading and writing what operators asked of a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from kubeletx.api import KubeletxError
from kubeletx.api.names import Event

from ..model import changes
from ..model.changes import Change
from ..model.machine_requests import Orders, after_restart, decode, encode
from ..plan.machine_hardware import sized_pod
from .context import StepContext

if TYPE_CHECKING:
    from ..executor import PodServices
    from ..worker import PodWorker

log = structlog.get_logger(__name__)


async def read_orders(step: StepContext) -> Change:
    """Take up what an earlier process wrote down."""
    await ensure_read(step.services, step.worker)
    return changes.nothing


async def ensure_read(services: PodServices, worker: PodWorker) -> Orders:
    """The orders; read now if nobody did so before. A verb may come sooner than the plan."""
    async with services.order_lock(worker.uid):
        return await _take_up(StepContext(services=services, worker=worker))


async def _take_up(step: StepContext) -> Orders:
    """Read once; an operation that the earlier process did not end has ended as unknown."""
    if step.facts.orders is not None:
        return step.facts.orders
    try:
        data = await step.services.directories.read_orders(step.pod)
        orders = decode(data) if data else Orders()
    except (KubeletxError, ValueError) as error:
        log.warning("Could not read what was asked of a machine", pod=step.desired.ref, err=str(error))
        orders = Orders()
    orders, lost = after_restart(orders, step.now().wall)
    for one in lost:
        what = f"{one.verb} {one.detail}".strip()
        step.warning(Event.OPERATION_UNKNOWN, f"{what} begun at {one.begun_at:%H:%M:%S}: {one.message}")
    if lost:
        await _write_quietly(step, orders)
    if orders.resources:
        _count_again(step, orders)
    step.worker.set_orders(orders)
    return orders


async def _write_quietly(step: StepContext, orders: Orders) -> None:
    """What cannot be written is found again, and told again, by the next process."""
    try:
        await write(step.services, step.worker, orders)
    except KubeletxError as error:
        log.warning("Could not write what was asked of a machine", pod=step.desired.ref, err=str(error))


def _count_again(step: StepContext, orders: Orders) -> None:
    """A machine that was resized by command takes what it takes, not what its spec says."""
    services, facts = step.services, replace(step.facts, orders=orders)
    handle = services.registry.find(facts.runtime) if facts.runtime is not None else None
    services.admission.release(step.uid)
    services.admission.restore(sized_pod(step.desired, facts), handle, step.desired.source)


async def write(services: PodServices, worker: PodWorker, orders: Orders) -> None:
    """On the disk for good when it returns. Raises when it cannot be."""
    await services.directories.write_orders(worker.desired.pod, encode(orders))


async def amend(services: PodServices, worker: PodWorker, change: Callable[[Orders], Orders]) -> Orders:
    """Change the orders: on the disk first, then for the plan."""
    async with services.order_lock(worker.uid):
        after = change(await _take_up(StepContext(services=services, worker=worker)))
        if after != worker.facts.orders:
            await write(services, worker, after)
            worker.set_orders(after)
    return after


def without_override(orders: Orders) -> Orders:
    """The spec's power changed: what a verb wished before no longer counts."""
    return replace(orders, power="", power_spec="")
