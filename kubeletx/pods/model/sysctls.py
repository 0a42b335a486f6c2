"""Converts sysctl names to the spelling with dots."""

from __future__ import annotations


def dotted(name: str) -> str:
    """Return the sysctl name with dots between its parts.

    ``net/ipv4/conf/eth0.1/x`` becomes ``net.ipv4.conf.eth0/1.x``; a name with dots is returned unchanged.
    """
    separator = next((char for char in name if char in "./"), ".")
    return name if separator == "." else name.translate(str.maketrans("./", "/."))
