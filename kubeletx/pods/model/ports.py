"""Resolves a port number or port name, as in probes and hooks, to a port of a container."""

from __future__ import annotations

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import Container


def resolve_port(container: Container, port: int | str) -> int:
    """Return the port number for `port`: a number, its digits, or the name of one of the container's ports.

    Raises InvalidPod if no port has this name, or the number is not from 1 to 65535.
    """
    number = port if isinstance(port, int) else _named(container, port)
    if not 0 < number < 65536:
        raise InvalidPod(field="port", problem=f"{port!r} is not a port from 1 to 65535")
    return number


def _named(container: Container, name: str) -> int:
    for port in container.ports:
        if port.name == name:
            return port.container_port
    if name.isascii() and name.isdigit():
        return int(name)
    raise InvalidPod(field="port", problem=f"container {container.name} has no port named {name!r}")
