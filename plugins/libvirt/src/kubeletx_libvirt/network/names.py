"""Names and MAC addresses derived from their owner, so that none must be stored.

A device name has at most 15 characters, a pod's UID 36: ten hex digits of a hash replace it.
"""

from __future__ import annotations

import hashlib
from typing import Final

GUEST_DEVICE_PREFIX: Final = "kxp"
"""The guest's macvtap, in the node's namespace."""
OUTER_DEVICE_PREFIX: Final = "kxv"
"""The end of the veth pair on which it stands."""
INNER_DEVICE: Final = "guest0"
"""The pair's other end, in the pod's namespace."""
INNER_BRIDGE: Final = "br0"
"""Joins `INNER_DEVICE` and CNI's interface, in the pod's namespace."""


def guest_device(uid: str) -> str:
    """The pod's macvtap in the node's namespace."""
    return GUEST_DEVICE_PREFIX + _short(uid)


def outer_device(uid: str) -> str:
    """Name of the macvtap's lower device."""
    return OUTER_DEVICE_PREFIX + _short(uid)


def stable_mac(*parts: str) -> str:
    """A locally administered unicast MAC address; the same for the same words."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    first = (digest[0] & 0xFC) | 0x02
    return ":".join(f"{byte:02x}" for byte in (first, *digest[1:6]))


def _short(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:10]
