"""Spellings of sysctl names."""

from __future__ import annotations


def dotted(name: str) -> str:
    """The name with dots between its parts: ``net/ipv4/conf/eth0.1/x`` is ``net.ipv4.conf.eth0/1.x``."""
    separator = next((char for char in name if char in "./"), ".")
    return name if separator == "." else name.translate(str.maketrans("./", "/."))
