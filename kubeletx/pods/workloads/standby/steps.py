"""Table of the actions for standby, with the step of each and its result after an unexpected error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...model.actions import Action
from ..rows import OwnRow
from . import results
from .actions import SetStandby
from .set_standby import set_standby

ROWS: Final[Mapping[type[Action], OwnRow]] = {
    SetStandby: OwnRow(set_standby, lambda a, *why: results.StandbyFailed(a.name, a.step, *why)),
}
