"""Parses the port arguments of ``kubeletx port-forward``."""

from __future__ import annotations

from typing import NamedTuple

import click


class Forward(NamedTuple):
    """A local port, and the port of the pod to which it is forwarded. `local` 0: any free port."""

    local: int
    remote: int


def parse_forward(text: str) -> Forward:
    """Parse ``8080:80``, ``80`` (the same port on both sides) or ``:80`` (any free local port)."""
    local, colon, remote = text.rpartition(":")
    numbers = (local or "0", remote) if colon else (remote, remote)
    if not all(number.isascii() and number.isdigit() and int(number) < 65536 for number in numbers):
        raise click.UsageError(f"{text!r} is not a port; write LOCAL:REMOTE, PORT or :REMOTE")
    if int(numbers[1]) == 0:
        raise click.UsageError(f"{text!r}: the pod's port must not be 0")
    return Forward(int(numbers[0]), int(numbers[1]))
