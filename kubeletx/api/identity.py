"""Types for ids: strings that a type checker keeps apart.

A runtime chooses its `SandboxId` and `UnitId` values, such as container ids. The agent never interprets them; it only
passes them back to the same runtime.
"""

from __future__ import annotations

from typing import NewType

PodUid = NewType("PodUid", str)
SandboxId = NewType("SandboxId", str)
UnitId = NewType("UnitId", str)
RuntimeName = NewType("RuntimeName", str)
"""A runtime's unique name on this node: a DNS label of at most 30 characters without ``--``."""
StoreId = NewType("StoreId", str)
"""Id of an image store. Runtimes that report the same id share one store."""

CONTAINER: str = "container"
VM: str = "vm"
"""The two built-in workload types; plugins may declare others."""
