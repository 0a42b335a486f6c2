"""The node under its cores, as the admin socket and ``kubeletx fornaxcore status`` show it; field names are camelCase."""

from __future__ import annotations

from datetime import datetime

import msgspec


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One core and the connection to it. `acknowledged`: revision of the last message that the core answered.

    `queue`: changes that wait. `overflows`: how often the queue was too long and a full state replaced it. `refused`:
    messages of the core that were not carried out. `full_at`: time of the last full state; None: none yet.
    """

    address: str
    identifier: str
    role: str
    connected: bool
    registered: bool
    since: datetime
    acknowledged: int
    queue: int
    full_at: datetime | None
    sent: int
    full_states: int
    received: int
    refused: int
    failures: int
    overflows: int
    problem: str


class FornaxStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The node under its cores. `revision`: number of its last change. `cores`: in order of connecting.

    `repaired`: what the reconciler repaired since the start, by name of the repair.
    """

    identifier: str
    state: str
    ready: bool
    revision: int
    cores: tuple[LinkStatus, ...]
    repaired: dict[str, int] = {}
