"""`ProofSearch`: searches for proofs that the holders of a volume are gone, in this order for each entry.

    facts about its node (`proofs.proof_from_facts`)
    the entry is of this node: the agent has no journal of it, and the backend finds no device
    policy seed: the same pod, of a StatefulSet
    the backend cuts the holder off (`Backend.fence`)

`Backend.fence` is asked only if the node is not ready and the cluster has given up the holder's pod: a second pod that
is started by mistake must not cut off the first one. A look-up that fails proves nothing; the refusal then says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from kubeletx.api import KubeletxError, within

from ..values import Holder, HolderKey, StorageVolume
from .decision import BreakPolicy
from .node import NodeContext
from .proofs import Proof, StorageNode, is_same_pod, proof_from_facts
from .record import AttachmentEntry

log = structlog.get_logger(__name__)

FENCE_SECONDS: Final = 20.0
"""Shorter than the agent's deadline for a call of the records. A fence that takes longer is asked for again."""
FIND_SECONDS: Final = 10.0
STATEFUL_OPTION: Final = "statefulSet"
"""Option of a volume that says, without a cluster, that its pods belong to a StatefulSet."""


class ProofSearch:
    """Searches for proofs against entries of records."""

    def __init__(self, context: NodeContext, *, fence_seconds: float = FENCE_SECONDS) -> None:
        self._context = context
        self._stores = context.stores
        self._fence_seconds = fence_seconds

    async def search(
        self, volume: StorageVolume, wanted: Holder, entries: Sequence[AttachmentEntry]
    ) -> dict[HolderKey, Proof]:
        """Return a result for each entry; `wanted`: holder that wants to enter."""
        nodes = sorted({entry.node for entry in entries})
        looks = await asyncio.gather(*map(self._stores.nodes.facts, nodes), return_exceptions=True)
        facts = dict(zip(nodes, looks, strict=True))
        proofs = await asyncio.gather(
            *(self._one(volume, wanted, entry, facts[entry.node]) for entry in entries)
        )
        return {entry.key: proof for entry, proof in zip(entries, proofs, strict=True)}

    async def _one(
        self,
        volume: StorageVolume,
        wanted: Holder,
        entry: AttachmentEntry,
        facts: StorageNode | BaseException,
    ) -> Proof:
        try:
            if isinstance(facts, BaseException):
                raise facts
            if why := proof_from_facts(entry, facts):
                return Proof(is_gone=True, why=why)
            if entry.node == wanted.node:
                return await self._own(volume, entry)
            if self._context.policy is BreakPolicy.SEED and await self._is_failover(volume, wanted, entry):
                return Proof(is_gone=True, why="the same pod of a StatefulSet runs here now (policy seed)")
            return await self._fenced(volume, entry, facts)
        except KubeletxError as error:
            return Proof(
                is_gone=False, why=f"nothing proves that it is gone, since a look-up failed ({error})"
            )

    async def _own(self, volume: StorageVolume, entry: AttachmentEntry) -> Proof:
        """Search for the entry's device on this node."""
        if self._context.is_used(entry.key):
            return Proof(is_gone=False, why="the volume is in use there")
        backend = self._context.backends.get(entry.backend)
        if backend is None:
            return Proof(
                is_gone=False, why=f"this node has no backend {entry.backend!r} to look for its device"
            )
        async with within(FIND_SECONDS, f"backend {entry.backend} did not answer"):
            found = await backend.find(entry.volume(volume.name))
        if found is None:
            return Proof(is_gone=True, why="its agent finds no device of it")
        return Proof(is_gone=False, why=f"its device {found.source} exists")

    async def _is_failover(self, volume: StorageVolume, wanted: Holder, entry: AttachmentEntry) -> bool:
        if not is_same_pod(entry, wanted):
            return False
        if self._stores.pods is None:
            return volume.parameters.get(STATEFUL_OPTION) == "true"
        return await self._stores.pods.is_stateful(wanted)

    async def _fenced(self, volume: StorageVolume, entry: AttachmentEntry, facts: StorageNode) -> Proof:
        if facts.ready:
            return Proof(is_gone=False, why="its node is ready")
        if self._stores.pods is not None and not await self._stores.pods.is_given_up(entry):
            return Proof(is_gone=False, why="its node is not ready, but its pod is not being deleted")
        backend = self._context.backends.get(entry.backend)
        if backend is None:
            return Proof(
                is_gone=False, why=f"its node is not ready, and backend {entry.backend!r} is not set up here"
            )
        async with within(self._fence_seconds, f"backend {entry.backend} did not fence it"):
            result = await backend.fence(entry.volume(volume.name), entry.holder)
        if result.fenced:
            log.warning("Fenced the holder of a volume", volume=volume.name, node=entry.node, why=result.why)
            return Proof(is_gone=True, why=result.why)
        return Proof(is_gone=False, why=f"its node is not ready, but it cannot be cut off: {result.why}")
