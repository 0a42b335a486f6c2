"""`Sandboxes`: the pods' records and their links to the pod network. The machines in them are handled by `units`."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubeletx.api import (
    KubeletxError,
    NamespaceMode,
    NotFound,
    PodUid,
    SandboxId,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
)
from kubeletx_libvirt.domain.metadata import Identity, sandbox_of
from kubeletx_libvirt.domain_reader import now_ns
from kubeletx_libvirt.machinery import Part
from kubeletx_libvirt.records import SandboxRecord


class Sandboxes(Part):
    """Makes, lists and releases the sandboxes of one libvirt."""

    async def create(self, spec: SandboxSpec) -> SandboxId:
        """Write the sandbox's record, then attach the pod to the pod network, if the node has one.

        Does nothing for a sandbox that is ready already. An interrupted earlier call is completed.
        """
        sandbox_id = SandboxId(f"{hashlib.sha256(spec.uid.encode()).hexdigest()[:24]}-{spec.attempt}")
        record = self._records.sandboxes.get(sandbox_id)
        if record is not None and record.is_ready:
            return sandbox_id
        record = record or SandboxRecord(spec=spec, created_at_ns=now_ns(self._host))
        await self._records.save_sandbox(sandbox_id, record)
        ips: tuple[str, ...] = ()
        if self._host.pod_network is not None:
            ips = (await self._links.attach(spec)).ips
            await self._links.serve(spec.uid)
        record = msgspec.structs.replace(record, is_ready=True, ips=ips)
        await self._records.save_sandbox(sandbox_id, record)
        return sandbox_id

    def list(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        return [
            _summary(sandbox_id, record, is_linked=self._is_linked(record))
            for sandbox_id, record in self._records.sandboxes.items()
            if match.items() <= record.spec.labels.items()
        ]

    async def status(self, sandbox_id: SandboxId) -> SandboxStatus:
        record = self._records.sandboxes.get(sandbox_id)
        if record is None:
            raise NotFound(f"sandbox {sandbox_id} does not exist")
        on_node = record.spec.namespaces.network is NamespaceMode.NODE
        is_linked = self._is_linked(record) and (not record.ips or await self._links.check(record.spec.uid))
        summary = _summary(sandbox_id, record, is_linked=is_linked)
        return SandboxStatus(summary=summary, ips=record.ips, host_network=on_node)

    async def release(self, sandbox_id: SandboxId) -> None:
        """Release the pod's network unless another sandbox of the same pod still needs it."""
        record = self._records.sandboxes.get(sandbox_id)
        if record is None or record.is_stopped:
            return
        if not any(
            other.spec.uid == record.spec.uid and not other.is_stopped
            for other_id, other in self._records.sandboxes.items()
            if other_id != sandbox_id
        ):
            await self._links.release(record.spec.uid)
        stopped = msgspec.structs.replace(record, is_stopped=True)
        await self._records.save_sandbox(sandbox_id, stopped, must_last=False)

    def has_others(self, uid: PodUid, sandbox_id: SandboxId) -> bool:
        """Return True if the pod has a recorded sandbox beside this one."""
        return any(i != sandbox_id and s.spec.uid == uid for i, s in self._records.sandboxes.items())

    async def adopt(self, identities: Iterable[Identity]) -> None:
        """Rebuild lost records from the identities of existing domains."""
        for identity in identities:
            if identity.sandbox_id not in self._records.sandboxes:
                link = await self._links.find(identity.uid)
                record = SandboxRecord(
                    spec=sandbox_of(identity),
                    created_at_ns=identity.created_at_ns,
                    is_ready=True,
                    ips=link.ips if link is not None else (),
                )
                await self._records.save_sandbox(identity.sandbox_id, record)

    async def repair_links(self) -> None:
        """Release the links of pods without a running sandbox, after a crash between two steps; serve the others."""
        known = {record.spec.uid for record in self._records.sandboxes.values() if not record.is_stopped}
        for uid in await self._links.list_uids():
            if uid not in known:
                with contextlib.suppress(KubeletxError):  # the next `open` tries again
                    await self._links.release(uid)
        for record in self._records.sandboxes.values():
            if record.is_ready and not record.is_stopped:
                with contextlib.suppress(KubeletxError):  # the guest keeps the address that it has
                    await self._links.serve(record.spec.uid)

    def _is_linked(self, record: SandboxRecord) -> bool:
        """Return False if the sandbox should have a network link but the link is gone."""
        return not record.ips or record.is_stopped or self._links.is_there(record.spec.uid)


def _summary(sandbox_id: SandboxId, record: SandboxRecord, *, is_linked: bool) -> SandboxSummary:
    """Return the sandbox as a list entry.

    A sandbox whose network is lost is not ready, so that the host makes a new one.
    """
    spec = record.spec
    is_ready = record.is_ready and not record.is_stopped and is_linked
    return SandboxSummary(
        id=sandbox_id,
        uid=spec.uid,
        name=spec.name,
        namespace=spec.namespace,
        attempt=spec.attempt,
        state=SandboxState.READY if is_ready else SandboxState.NOT_READY,
        created_at_ns=record.created_at_ns,
        handler=spec.handler,
        labels=spec.labels,
        annotations=spec.annotations,
    )
