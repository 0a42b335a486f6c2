"""Names and MAC addresses that are derived from their owner, so that they need not be stored.

A device name has at most 15 characters, but a pod's UID has 36. So ten hex digits of the UID's hash are used.
"""

from __future__ import annotations

import hashlib
from typing import Final

GUEST_DEVICE_PREFIX: Final = "kxp"
"""Prefix of the guest's macvtap in the node's namespace."""
OUTER_DEVICE_PREFIX: Final = "kxv"
"""Prefix of the veth end below the macvtap, in the node's namespace."""
INNER_DEVICE: Final = "guest0"
"""Name of the other veth end, in the pod's namespace."""
INNER_BRIDGE: Final = "br0"
"""Name of the bridge in the pod's namespace that connects `INNER_DEVICE` and CNI's interface."""


def guest_device(uid: str) -> str:
    """Return the name of the pod's macvtap in the node's namespace."""
    return GUEST_DEVICE_PREFIX + _short(uid)


def outer_device(uid: str) -> str:
    """Return the name of the veth end below the macvtap, in the node's namespace."""
    return OUTER_DEVICE_PREFIX + _short(uid)


def stable_mac(*parts: str) -> str:
    """Return a locally administered unicast MAC address; the same for the same parts."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    first = (digest[0] & 0xFC) | 0x02
    return ":".join(f"{byte:02x}" for byte in (first, *digest[1:6]))


def _short(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:10]
