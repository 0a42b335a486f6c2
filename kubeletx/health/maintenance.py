"""Maintenance mode: on while there is a reason, unless the configuration decides otherwise. Pure.

    configuration enabled or disabled  >  the controller's request  >  local reasons

In maintenance mode no new pods are accepted (the agent's part), and the node stays reachable for repairs.
"""

from __future__ import annotations

import enum

import msgspec


class MaintenanceReason(enum.StrEnum):
    """Reason for maintenance mode. Names of EVE (pkg/pillar/types, MaintenanceModeReason)."""

    USER_REQUESTED = "UserRequested"
    VAULT_LOCKED_UP = "VaultLockedUp"
    """The vault did not open before its cut-off, in normal operation."""
    NO_DISK_SPACE = "NoDiskSpace"
    TPM_ENC_FAILURE = "TpmEncFailure"
    TPM_QUOTE_FAILURE = "TpmQuoteFailure"
    EDGE_NODE_CERTS_REFUSED = "EdgeNodeCertsRefused"


class Maintenance(msgspec.Struct, frozen=True):
    """Maintenance mode now. `reasons`: local ones, sorted; they are shown even if something stronger decides."""

    is_on: bool = False
    reasons: tuple[MaintenanceReason, ...] = ()
    decided_by: str = ""
    """Configuration, controller or local reasons; empty: it is off because there is no reason."""


def decide(word: str, asked: bool, reasons: frozenset[MaintenanceReason]) -> Maintenance:
    """Return the mode. `word`: item maintenance.mode, none, enabled or disabled. `asked`: by the controller."""
    ordered = tuple(sorted(reasons))
    if word in {"enabled", "disabled"}:
        return Maintenance(word == "enabled", ordered, "configuration")
    if asked:
        return Maintenance(is_on=True, reasons=ordered, decided_by="controller")
    return Maintenance(bool(ordered), ordered, "local reasons" if ordered else "")
