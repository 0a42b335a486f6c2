"""Table of the actions for machines, with the step of each and its result after an unexpected error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...model.actions import Action
from ...model.results import ResizeFailed
from ..rows import OwnRow
from . import actions as act
from . import results
from .devices import attach_nic, detach_nic, list_nics, resize_unit
from .set_power import set_power

ROWS: Final[Mapping[type[Action], OwnRow]] = {
    act.SetPower: OwnRow(set_power, lambda a, *why: results.PowerFailed(a.name, *why)),
    act.ListNics: OwnRow(list_nics, lambda a, *why: results.NicsUnlisted(a.name, *why)),
    act.AttachNic: OwnRow(attach_nic, lambda a, *why: results.NicFailed(a.name, a.nic.name or "", *why)),
    act.DetachNic: OwnRow(detach_nic, lambda a, *why: results.NicFailed(a.name, a.nic_name, *why)),
    act.ResizeUnit: OwnRow(resize_unit, lambda a, *why: ResizeFailed(a.name, *why)),
}
