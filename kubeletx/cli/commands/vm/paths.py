"""URL paths of machines on the admin socket, and durations, for all commands of ``kubeletx vm``."""

from __future__ import annotations

from urllib.parse import quote

import click

from kubeletx.kube.text.duration import parse_duration

from ...connection.client import pod_path
from ...options.common import split_pod


def vm_path(namespace: str, name: str, what: str = "") -> str:
    """Return the URL path of a machine, or of `what` below it."""
    return pod_path(namespace, split_pod(name), f"vm/{what}" if what else "vm")


def item_path(namespace: str, name: str, what: str, item: str, verb: str = "") -> str:
    """Return the URL path of one snapshot or interface of a machine. `verb`: operation on it, if any."""
    return vm_path(namespace, name, f"{what}/{quote(item, safe='')}" + (f"/{verb}" if verb else ""))


def seconds_of(option: str, text: str) -> float:
    """Parse a duration such as 30s to seconds. `option`: its flag, for the message. Raises UsageError."""
    try:
        return parse_duration(text)
    except ValueError as err:
        raise click.UsageError(f"{option}: {text!r} {err}") from err
