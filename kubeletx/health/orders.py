"""Orders of users, the controller and other agents, and the answer to each. Pure."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from .model import (
    Begin,
    BootReason,
    Effect,
    OperationKind,
    Order,
    OrderAnswer,
    SetSlot,
    SlotState,
    SlotTable,
)

IMAGE_VERBS: Final = ("install", "cancel", "retry", "force-fallback")
OPERATION_VERBS: Final = tuple(OperationKind)
MARK_VERBS: Final = ("mark-active", "mark-failed")
VERBS: Final = (*IMAGE_VERBS, *OPERATION_VERBS, *MARK_VERBS, "maintenance", "config", "plan")
_BOOTS: Final = "{} is booted once, then tested"


class FailedImage(msgspec.Struct, frozen=True):
    """An image that fell back: its slot, its version, and why."""

    label: str
    version: str
    reason: str


class SlotWrite(msgspec.Struct, frozen=True):
    """A write to a slot that an order has decided, stored before it is done and repeated until the slot shows it.

    `before`: state of the slot when it was decided. `boot`: identity of the boot.
    """

    label: str
    state: SlotState
    before: SlotState
    boot: str

    def is_due(self, table: SlotTable, boot: str) -> bool:
        """Return False if the slot shows it, or has changed since."""
        # After a reboot a failed image may already have been booted again; it is not booted a second time.
        is_sure = boot == self.boot or self.before is not SlotState.INPROGRESS
        return is_sure and table.other.label == self.label and table.other.state is self.before


class Reply(msgspec.Struct, frozen=True):
    """Answer to an order, and what is done. `keeps`: the order stays and is tried again after the commit."""

    answer: OrderAnswer
    effects: tuple[Effect, ...] = ()
    keeps: bool = False


def reply_to(order: Order, outcome: str, message: str, *effects: Effect, keeps: bool = False) -> Reply:
    """Return a reply."""
    return Reply(OrderAnswer(id=order.id, outcome=outcome, message=message), effects, keeps)


def decide_image(
    order: Order, table: SlotTable | None, failed: FailedImage | None, *, commit: str = ""
) -> Reply:
    """Answer an order about an image (transitions 1 and 11 to 14 of EVE). `commit`: label of the image whose commit is under way."""

    reply = partial(reply_to, order)
    if table is None or commit:
        why = f"{commit} is being committed" if commit else "the slots have not answered yet"
        return reply("deferred", why, keeps=True)
    label, current, other = order.label, table.current, table.other
    if label not in {current.label, other.label}:
        return reply("refused", f"{label!r} is not a slot; the slots are {current.label} and {other.label}")
    if label == current.label:
        return reply("refused", f"{label} is the running image; name the other slot, {other.label}")
    boots = _BOOTS.format(label)
    match order.verb:
        case "install":
            outcome, message, state = _install(order, table, failed)
            effects = (SetSlot(label, state),) if state else ()
            return reply(outcome, message, *effects, keeps=outcome == "deferred")
        case "cancel":
            if other.state is not SlotState.UPDATING:
                return reply("refused", f"{label} is {other.state}, not updating")
            if current.state is not SlotState.ACTIVE:
                return reply("refused", f"{current.label} is not committed; {label} is its way back")
            return reply("accepted", f"{label} is not booted", SetSlot(label, SlotState.UNUSED))
        case "retry":
            has_failed = other.state is SlotState.INPROGRESS or (
                other.state is SlotState.UNUSED and failed is not None and failed.version == other.version
            )
            if current.state is not SlotState.ACTIVE or not has_failed:
                return reply(
                    "refused",
                    f"{label} is {other.state} and {current.label} {current.state}; "
                    "a retry needs a failed image beside an active one",
                )
            return reply("accepted", boots, SetSlot(label, SlotState.UPDATING))
        case _:
            if current.state is not SlotState.ACTIVE:
                return reply("deferred", f"{current.label} is being tested", keeps=True)
            if other.state is not SlotState.UNUSED or not other.version:
                return reply(
                    "refused",
                    f"{label} is {other.state}"
                    + ("" if other.version else " and has no image")
                    + "; a forced fallback needs an unused slot with an image",
                )
            return reply("accepted", boots, SetSlot(label, SlotState.UPDATING))


def _install(order: Order, table: SlotTable, failed: FailedImage | None) -> tuple[str, str, SlotState | None]:
    """Return the outcome, the message, and the state that the slot gets."""
    label, current, other = order.label, table.current, table.other
    version = order.version or other.version
    # A slot that does not know its version shows its label.
    is_other_version = bool(order.version) and other.version not in {"", label, order.version}
    if other.state is SlotState.UPDATING and not is_other_version:
        return "accepted", _BOOTS.format(label), None
    # An image without a version cannot be compared with the failed one, so it is tried.
    shows_failure = other.state is SlotState.INPROGRESS or version != label
    if failed and version and version == failed.version and shows_failure:
        why = f"{failed.reason}; kubeletx health retry {label} tries it again"
        return "refused", f"{version} in {label} has failed: {why}", None
    if current.state is not SlotState.ACTIVE or other.state is SlotState.ACTIVE:
        return "deferred", f"too early: {current.label} is being tested", None
    if is_other_version:
        why = f"{label} has version {other.version}, not {order.version}; write the image first"
        return "refused", why, SlotState.UNUSED
    return "accepted", _BOOTS.format(label), SlotState.UPDATING


def request_of(order: Order) -> Begin:
    """Return the operation that an order asks for."""
    kind = OperationKind(order.verb)
    reason = order.reason or f"{kind} was ordered"
    known = order.boot_reason in set(BootReason)
    boot_reason = BootReason(order.boot_reason) if known else BootReason.PARSE_FAIL
    if kind is OperationKind.POWEROFF and boot_reason is BootReason.REBOOT_CMD:
        boot_reason = BootReason.POWEROFF_CMD
    return Begin(kind=kind, boot_reason=boot_reason, reason=reason)
