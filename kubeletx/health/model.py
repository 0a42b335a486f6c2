"""Values of the guardian. Pure. Times are seconds since its first tick, counted in ticks of `TICK_SECONDS`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

TICK_SECONDS: Final = 10
Complain = Callable[[str], object]
"""Function that logs what is wrong with something from outside, one line."""


class SlotState(enum.StrEnum):
    """State of the OS image in a slot."""

    ACTIVE = "active"
    """Committed: the loader may boot it any number of times."""
    UPDATING = "updating"
    """Written and not tried: the loader boots it once."""
    INPROGRESS = "inprogress"
    """The try is used up: it is being tested, or has failed."""
    UNUSED = "unused"


class Slot(msgspec.Struct, frozen=True):
    """A place for one OS image. `version`: of the image, empty if unknown. `device`: where it is, such as a partition."""

    label: str
    state: SlotState
    version: str = ""
    device: str = ""


class SlotTable(msgspec.Struct, frozen=True):
    """Both slots, and the label of the running image."""

    slots: tuple[Slot, Slot]
    current_label: str

    @property
    def current(self) -> Slot:
        return self.get(self.current_label)

    @property
    def other(self) -> Slot:
        first, second = self.slots
        return second if first.label == self.current_label else first

    def get(self, label: str) -> Slot:
        """Return the slot. Raises KeyError."""
        for slot in self.slots:
            if slot.label == label:
                return slot
        raise KeyError(label)

    def with_state(self, label: str, state: SlotState) -> SlotTable:
        """Return the table after a write."""
        first, second = (replace(slot, state=state) if slot.label == label else slot for slot in self.slots)
        return SlotTable((first, second), self.current_label)


class BootReason(enum.IntEnum):
    """Reason for a boot of the node. Numbers and names are those of EVE (pkg/pillar/types, BootReason)."""

    NONE = 0
    FIRST = 1
    REBOOT_CMD = 2
    UPDATE = 3
    FALLBACK = 4
    DISCONNECT = 5
    FATAL = 6
    OOM = 7
    WATCHDOG_HUNG = 8
    WATCHDOG_PID = 9
    KERNEL = 10
    POWER_FAIL = 11
    UNKNOWN = 12
    VAULT_FAILURE = 13
    POWEROFF_CMD = 14
    KUBE_TRANSITION = 15
    HW_WATCHDOG = 16
    PARSE_FAIL = 255

    @property
    def text(self) -> str:
        """Name as EVE writes it, without its prefix BootReason: ``Fallback``, ``OOM``."""
        return _NAMES.get(self, self.name.title().replace("_", ""))


_NAMES: Final = {BootReason.OOM: "OOM", BootReason.HW_WATCHDOG: "HWWatchdog"}


class Reach(enum.IntEnum):
    """Answer of a source about the controller. Numbers of EVE's ConfigGetStatus; 0: nothing yet."""

    UNKNOWN = 0
    SUCCESS = 1
    FAIL = 2
    TEMPORARY_FAIL = 3
    READ_SAVED = 4


class OperationKind(enum.StrEnum):
    """Ways to end this boot. If two are asked for in one tick, poweroff wins over shutdown, and shutdown over reboot."""

    REBOOT = "reboot"
    SHUTDOWN = "shutdown"
    POWEROFF = "poweroff"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a user, the controller or another agent. `id`: unique; an order is carried out once.

    `verb`: see `orders.VERBS`. `label`: slot, for orders about an image. `version`: of the image, for ``install``.
    """

    id: str
    verb: str
    label: str = ""
    version: str = ""
    reason: str = ""
    boot_reason: int = BootReason.REBOOT_CMD
    values: dict[str, str] = {}
    """For ``config``: items to set; an empty value removes the item."""


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to an order. `outcome`: accepted, deferred or refused; `message`: one line for users."""

    id: str
    outcome: str
    message: str


class CheckLevel(enum.StrEnum):
    """Weight of a failed check in the verdict."""

    REQUIRED = "required"
    """While it fails, no image is committed; if it fails for too long, the node falls back."""
    WANTED = "wanted"
    """It is shown as a warning."""
    INFORMATION = "information"


class CheckState(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Settled result of a check, after hysteresis. `ok` null: no result yet. `level`: required, wanted or information."""

    name: str
    level: str = CheckLevel.INFORMATION
    ok: bool | None = None
    message: str = ""


class NodeBoot(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One boot of the node. `reason`: its code and text. `time`: RFC 3339. `image`: label of the image that ran before."""

    reason: str
    time: str = ""
    image: str = ""


class SetSlot(msgspec.Struct, frozen=True):
    """Effect: give the slot this state. It is repeated each tick until the slots show it."""

    label: str
    state: SlotState


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Effect: begin an operation, unless one is under way. `stack`: of the program that hangs, empty if unknown."""

    kind: OperationKind
    boot_reason: BootReason
    reason: str
    stack: str = ""


class RecordEvent(msgspec.Struct, frozen=True):
    """Effect: log a line and record it in the history. `reason`: CamelCase, as in events of Kubernetes."""

    reason: str
    message: str


class RestartUnit(msgspec.Struct, frozen=True):
    """Effect: restart a service."""

    unit: str


class WithdrawUpdate(msgspec.Struct, frozen=True):
    """Effect: do not reboot into a new image, if pods have not been asked to end for it yet."""


Effect = SetSlot | Begin | WithdrawUpdate | RecordEvent | RestartUnit
