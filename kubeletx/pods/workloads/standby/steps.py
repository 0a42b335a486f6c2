"""The steps of standby by action: each with the result when the step has a bug."""

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
