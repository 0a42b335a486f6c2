"""Decisions about requests: orders of users, and images, counters and activations of the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..config import HealthSettings, merge
from ..drain import DrainRequester
from ..forecast import Situation
from ..inbox import Inbox
from ..model import Effect, Order, SlotTable
from ..orders import IMAGE_VERBS, MARK_VERBS, OPERATION_VERBS, Reply, decide_image, reply_to, request_of
from ..outbox import Orders
from ..validation import ControllerMark
from .counters import fallback_counters, find_activated, kept_activation, take_cancelled, take_counters
from .ending import BootEnding
from .guardian_state import GuardianState


class RequestProcessor:
    """Changes the state as requests want it, and returns the effects on the slots.

    `has_slots`: the node has two OS images. `situation`: returns the start of a forecast. `record`: see `BootEnding`.
    """

    def __init__(
        self,
        state: GuardianState,
        orders: Orders,
        inbox: Inbox,
        ending: BootEnding,
        *,
        has_slots: bool,
        situation: Callable[[], Situation],
        record: Callable[[str, str], object],
    ) -> None:
        self._state, self._orders, self._inbox, self._ending = state, orders, inbox, ending
        self._has_slots, self._situation, self._record = has_slots, situation, record
        self._wanted = ""
        """Version that Activate asked for last."""

    def take_controllers(self) -> Sequence[Effect]:
        """Return the effects of what the controller has changed about images."""
        state, memory = self._state, self._state.memory
        if state.table is None or memory.commit or memory.write:
            return ()
        images = self._inbox.images.values()
        fallback = fallback_counters(self._inbox, state.own_settings)
        counters, effects = take_counters(memory.counters, fallback, images, state.table, memory.failed)
        activated = kept_activation(memory.activated, images, self._inbox.cancelled)
        state.update_memory(counters=counters, activated=activated)
        return take_cancelled(self._inbox, state.table) or effects or self._activate(state.table)

    def _activate(self, table: SlotTable) -> Sequence[Effect]:
        version = find_activated(self._inbox.images.values(), table, self._state.memory.activated)
        if not version:
            return ()
        is_new, self._wanted = version != self._wanted, version
        order = Order(id="", verb="install", label=table.other.label, version=version)
        reply = self._carry_out_image(order, is_new=is_new)
        if reply.keeps:
            return ()
        self._state.update_memory(activated=version)
        if reply.answer.outcome == "refused":
            self._record("InstallRefused", reply.answer.message)
        return reply.effects

    def carry_out(self, order: Order) -> Reply:
        """Answer an order; its effects on the slots are not done yet."""
        state, message, outcome = self._state, "", "accepted"
        if order.verb in IMAGE_VERBS:
            return self._carry_out_image(order, is_new=not self._orders.is_kept(order))
        if order.verb in OPERATION_VERBS:
            message, outcome = self._order_operation(order)
        elif order.verb in MARK_VERBS:
            if state.is_testing:
                mark = ControllerMark(order.verb.removeprefix("mark-"))
                state.update_run(mark=mark)
                message = f"the running image is marked {mark}"
            else:
                message, outcome = "no image is being tested", "refused"
        elif order.verb == "maintenance":
            is_on = order.values.get("mode") == "on"
            state.update_memory(asks_maintenance=is_on)
            message = f"maintenance mode is {'asked for' if is_on else 'not asked for any more'}"
        elif order.verb == "plan":
            message = msgspec.json.encode(self._situation()).decode()
        elif order.verb == "config":
            message, outcome = self._set_items(order.values)
        else:
            message, outcome = f"{order.verb!r} is not an order", "refused"
        return reply_to(order, outcome, message)

    def _carry_out_image(self, order: Order, *, is_new: bool) -> Reply:
        if not self._has_slots:
            return reply_to(order, "refused", "this node has one OS image; start with --slots")
        if order.verb == "cancel" and (waiting := self._orders.kept(order.label)):
            for kept in waiting:
                reply = reply_to(kept, "refused", f"{kept.verb} was cancelled")
                self._orders.answer(kept, reply.answer, keeps=False)
            return reply_to(order, "accepted", f"{order.label} is not booted")
        memory, table = self._state.memory, self._state.table
        if table and memory.write:
            table = table.with_state(memory.write.label, memory.write.state)
        decided = decide_image(order, table, memory.failed, commit=memory.commit)
        if order.verb == "install" and decided.answer.outcome == "accepted" and decided.effects:
            held_by = self._ending.drain(DrainRequester.UPDATE, is_new_order=is_new)
            if held_by:
                return reply_to(order, "deferred", held_by, keeps=True)
        return decided

    def _order_operation(self, order: Order) -> tuple[str, str]:
        """Return the message and the outcome."""
        if refusal := self._ending.begin(request_of(order), must_wait=True):
            return refusal, "refused"
        if held_by := self._ending.hold(is_new_order=True):
            return f"{order.verb} waits: {held_by}", "deferred"
        return f"{order.verb} is under way", "accepted"

    def _set_items(self, values: dict[str, str]) -> tuple[str, str]:
        problems: list[str] = []
        wanted = {name: value for name, value in values.items() if value}
        checked = merge(HealthSettings(), wanted, problems.append).items
        if problems:
            return "; ".join(problems), "refused"
        state = self._state
        items = {name: value for name, value in state.memory.items.items() if name not in values}
        state.update_memory(items={**items, **checked})
        state.apply_settings(state.controller_items)
        return ", ".join(
            f"{name}={value}" if value else f"{name} removed" for name, value in values.items()
        ), "accepted"
