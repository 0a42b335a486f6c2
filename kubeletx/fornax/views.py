"""The node under its cores, as the admin socket and ``kubeletx fornaxcore status`` show it; field names are camelCase."""

from __future__ import annotations

from datetime import datetime

import msgspec


class LinkStatus(msgspec.Struct, kw_only=True, rename="camel"):
    """One core and the connection to it. Counts begin when the link is made.

    `since`: time of the last change of `connected`. `acknowledged`: revision of the last message that the core
    answered. `queue`: changes that wait. `full_at`: time of the answer to the last full state; None: none yet.
    `sent`: messages that the core answered, by type; NODE_STATE and NODE_READY are full states. `refused`: messages of
    the core that were not carried out. `failures`: messages that the core did not answer or refused. `overflows`:
    number of times that a full state replaced a queue that was too long. `problem`: why the core is not connected, or
    why the last message failed; empty: neither.
    """

    address: str
    since: datetime
    identifier: str = ""
    role: str = ""
    connected: bool = False
    registered: bool = False
    acknowledged: int = 0
    queue: int = 0
    full_at: datetime | None = None
    sent: dict[str, int] = {}
    received: int = 0
    refused: int = 0
    failures: int = 0
    overflows: int = 0
    connects: int = 0
    problem: str = "not connected yet"


class FornaxStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The node under its cores. `revision`: number of its last change. `cores`: in order of connecting.

    `repaired`: number of repaired objects since the start, by name of the repair.
    """

    identifier: str
    state: str
    ready: bool
    revision: int
    cores: tuple[LinkStatus, ...]
    repaired: dict[str, int] = {}
