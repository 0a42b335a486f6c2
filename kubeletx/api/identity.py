"""Typed identities: strings that must not be mixed up.

A foreign id (container id, domain UUID) stays inside its runtime; the host only hands it back to the
runtime that made it.
"""

from __future__ import annotations

from typing import NewType

PodUid = NewType("PodUid", str)
SandboxId = NewType("SandboxId", str)
UnitId = NewType("UnitId", str)
RuntimeName = NewType("RuntimeName", str)
"""A runtime's unique name on this node: a DNS label of at most 30 characters without ``--``."""
StoreId = NewType("StoreId", str)
"""Identity of an image store; equal ids are one store, whichever runtimes use it."""

CONTAINER: str = "container"
VM: str = "vm"
"""The two built-in workload types; plugins may declare others."""
