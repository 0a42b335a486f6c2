"""Seeds and owners of the node: to which cores it is connected, and which of them may command it. Pure.

    no ownership known       every seed: each may command
    ownership known          the primary (commands) and the standbys (get every report, and take over by a new ownership)
    no owner is connected    the seeds too: they may only send a new ownership

A core sends the ownership as FORNAX_CORE_CONFIGURATION or inside any command. In active/standby mode one primary owns all
nodes; in partitioned active/active mode each core is the primary of some nodes. The node treats both the same.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec

from kubeletx.api import InvalidConfig

from .stubs import fornaxcore_pb2 as pb

DEFAULT_PORT = 18001


class Role(enum.Enum):
    """Role of a core for this node."""

    SEED = "seed"
    PRIMARY = "primary"
    STANDBY = "standby"


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """One core. `address`: HOST:PORT. `identifier`: as the cores call it; empty for a seed."""

    address: str
    role: Role
    identifier: str = ""


def parse_address(text: str, field: str) -> str:
    """Return HOST:PORT of an address; the default port is 18001. Raises InvalidConfig, which names `field`.

    `text`: HOST, HOST:PORT, IPv4, IPv6 or [IPv6]:PORT.
    """
    host, separator, port = text.rpartition(":")
    is_bare = text.count(":") > 1 and not host.endswith("]")
    if not separator or is_bare:
        host, port = text, str(DEFAULT_PORT)
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or any(sign in bare for sign in "/ []") or not port.isascii() or not port.isdigit():
        raise InvalidConfig(field=field, problem=f"{text!r} is not HOST:PORT", fix="such as 192.0.2.1:18001")
    if not 0 < int(port) < 65536:
        raise InvalidConfig(field=field, problem=f"{text!r} has port {port}", fix="use 1 to 65535")
    return f"[{bare}]:{int(port)}" if ":" in bare else f"{bare}:{int(port)}"


def parse_seeds(texts: Sequence[str], field: str = "--fornaxcore-url") -> tuple[Core, ...]:
    """Return the seeds, each once and in order. Raises InvalidConfig for an invalid address."""
    addresses = dict.fromkeys(parse_address(text, field) for text in texts)
    return tuple(Core(address=address, role=Role.SEED) for address in addresses)


def parse_owners(configuration: pb.FornaxCoreConfiguration) -> tuple[Core, ...]:
    """Return the owners that a core has sent, the primary first.

    Raises InvalidConfig if it names no primary, or if any address is invalid.
    """
    if not configuration.HasField("primary"):
        raise InvalidConfig(field="primary", problem="is missing", fix="a node has one primary core")
    found: dict[str, Core] = {}
    for role, core in (
        (Role.PRIMARY, configuration.primary),
        *((Role.STANDBY, standby) for standby in configuration.standbys),
    ):
        address = parse_address(core.ip, f"{role.value}.ip")
        found.setdefault(address, Core(address=address, role=role, identifier=core.identifier))
    return tuple(found.values())


class Cores:
    """The seeds and the owners of the node."""

    def __init__(self, seeds: Iterable[Core], owners: Iterable[Core] = ()) -> None:
        self.seeds = tuple(seeds)
        self.owners = tuple(owners)

    def wanted(self, *, with_seeds: bool) -> dict[str, Core]:
        """Return the cores to connect to, by address. `with_seeds`: no owner can be reached."""
        seeds = self.seeds if with_seeds or not self.owners else ()
        return {core.address: core for core in (*seeds, *self.owners)}

    def may_command(self, address: str) -> bool:
        """Return True if this core may create, change and end pods and sessions, and configure the node."""
        wanted = self.owners or self.seeds
        return any(core.address == address and core.role is not Role.STANDBY for core in wanted)
