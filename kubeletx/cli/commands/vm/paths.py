"""URL paths of machines on the admin socket, for the commands of ``kubeletx vm``."""

from __future__ import annotations

from urllib.parse import quote

from ...connection.client import pod_path
from ...options.common import split_pod


def vm_path(namespace: str, name: str, what: str = "") -> str:
    """Return the URL path of a pod's machine, or of `what` below it, such as ``nics``.

    `name`: the pod's name, as NAME or pod/NAME.
    """
    return pod_path(namespace, split_pod(name), f"vm/{what}" if what else "vm")


def item_path(namespace: str, name: str, what: str, item: str, verb: str = "") -> str:
    """Return the URL path of one snapshot or network interface of a machine.

    `what`: snapshots or nics. `item`: name of the snapshot or interface. `verb`: operation on it, such as restore;
    empty: the item itself.
    """
    return vm_path(namespace, name, f"{what}/{quote(item, safe='')}" + (f"/{verb}" if verb else ""))
