"""Parts of a machine other than disks: network interfaces, shared directories, and the cloud-init seed.

`Guests.prepare` creates them and returns their XML for the domain; nothing is kept in memory. `Guests.renew`,
before each start, makes bind mounts again (the node may have restarted) and the seed (interfaces may have
changed). `Guests.release` removes them with the machine.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubeletx.api import KubeletxError, Machine, PermissionDenied, SandboxSpec, UnitId, UnitSpec
from kubeletx_libvirt.addresses import Holder
from kubeletx_libvirt.cloudinit import build_seed, check_settings, write_seed
from kubeletx_libvirt.domain.xml import Disk
from kubeletx_libvirt.emulation import Emulation
from kubeletx_libvirt.machinery import Machinery, Part
from kubeletx_libvirt.mount_visibility import check_visibility
from kubeletx_libvirt.network.links import GuestLink, interface_xml
from kubeletx_libvirt.network.nics import resolve_nics
from kubeletx_libvirt.records import UnitRecord, state_file_errors
from kubeletx_libvirt.shares import (
    Share,
    ShareKind,
    closed_share,
    find_files,
    find_virtiofsd,
    memory_backing_xml,
    plan_shares,
    prepare_shares,
    release_shares,
    share_xml,
)

SEED_SERIAL = "seed"


class GuestParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a machine, in the form that `domain.xml.Plan` needs.

    `devices`: XML elements for ``<devices>``. `elements`: XML elements for ``<domain>``. `seed`: the
    cloud-init disk.
    """

    devices: tuple[str, ...] = ()
    elements: tuple[str, ...] = ()
    seed: Disk


class Guests(Part):
    """Creates, renews and removes the interfaces, shared directories and cloud-init seeds of one runtime's machines."""

    def __init__(self, machinery: Machinery, emulation: Emulation) -> None:
        super().__init__(machinery)
        self._emulation = emulation

    async def prepare(
        self, unit_id: UnitId, spec: UnitSpec, machine: Machine, sandbox: SandboxSpec
    ) -> GuestParts:
        """Create all parts of a new machine, and return them for its definition.

        `machine`: the details in `spec`. Raises InvalidPod for interfaces, keys and settings that this node
        does not have.
        """
        check_settings(machine)
        links = await self._resolve(machine, sandbox)
        self._addresses.hold(Holder(sandbox.uid, f"{sandbox.namespace}/{sandbox.name}"), links)
        shares = await self._plan_shares(unit_id, spec)
        await self._host.blocking(prepare_shares, shares)
        path = await self._write_seed(unit_id, machine, sandbox, links, shares)
        backing = memory_backing_xml(shares)
        return GuestParts(
            devices=(*map(interface_xml, links), *map(share_xml, shares)),
            elements=(backing,) if backing else (),
            seed=Disk(path=str(path), format="raw", read_only=True, serial=SEED_SERIAL),
        )

    async def renew(self, unit_id: UnitId, record: UnitRecord, sandbox: SandboxSpec | None) -> None:
        """Restore what a restart of the node removed, and update the seed if interfaces were changed.

        `sandbox`: None means that the machine continues from saved memory; the seed is then left unchanged.
        Raises Conflict if libvirtd sees other files than the agent at the path of a shared directory.
        """
        shares = await self._plan_shares(unit_id, record.spec)
        await self._host.blocking(prepare_shares, shares)
        if shares and (pid := await self._connection.find_daemon()) is not None:
            await self._host.blocking(check_visibility, shares, pid)
        if record.nics is not None and sandbox is not None and record.machine is not None:
            machine = msgspec.structs.replace(record.machine, nics=record.nics)
            links = await self._resolve(machine, sandbox)
            await self._write_seed(unit_id, machine, sandbox, links, shares)

    async def release(self, unit_id: UnitId) -> None:
        """Unmount the machine's shared directories; succeeds if there are none."""
        await self._host.blocking(release_shares, self._share_directory(unit_id))

    async def explain(self, unit_id: UnitId, spec: UnitSpec, error: KubeletxError) -> KubeletxError | None:
        """Return a better error for a start that failed because the emulator may not open a shared directory.

        The new error names the pod's volume. Returns None if the start failed for another reason.
        """
        closed = closed_share(await self._plan_shares(unit_id, spec), str(error))
        if closed is None:
            return None
        gid = await self._emulation.gid()
        return PermissionDenied(
            f"volume {closed.volume} at {closed.target}: emulators may not open {closed.origin}; "
            f"run: setfacl -m g:{gid}:rx {closed.origin}, or install virtiofsd, which reads as root"
        )

    async def _write_seed(
        self,
        unit_id: UnitId,
        machine: Machine,
        sandbox: SandboxSpec,
        links: tuple[GuestLink, ...],
        shares: tuple[Share, ...],
    ) -> Path:
        seed = build_seed(machine, sandbox, links=links, shares=shares, key_pairs=self._settings.key_pairs)
        path = self._records.unit_directory(unit_id) / "seed.iso"
        emulator_gid = await self._emulation.gid()
        with state_file_errors(path):
            await self._host.blocking(write_seed, path, seed, emulator_gid)
        return path

    async def _resolve(self, machine: Machine, sandbox: SandboxSpec) -> tuple[GuestLink, ...]:
        if self._host.pod_network is None:
            return ()
        resolved = resolve_nics(
            machine,
            await self._links.attach(sandbox),
            networks=self._settings.networks,
            ports=self._settings.ports,
            unknown=self._settings.unknown_network,
            uid=sandbox.uid,
        )
        for warning in resolved.warnings:
            self._record_event(sandbox, "UnknownNetwork", warning)
        return resolved.links

    async def _plan_shares(self, unit_id: UnitId, spec: UnitSpec) -> tuple[Share, ...]:
        if not spec.mounts:
            return ()
        return plan_shares(
            spec.mounts,
            directory=self._share_directory(unit_id),
            kind=self._share_kind(),
            files=await self._host.blocking(find_files, spec.mounts),
            is_root=await self._emulation.gid() is None,
        )

    def _share_directory(self, unit_id: UnitId) -> Path:
        return self._records.unit_directory(unit_id) / "shares"

    def _share_kind(self) -> ShareKind:
        chosen = self._settings.shares
        if chosen == "auto":
            chosen = "virtiofs" if find_virtiofsd() else "9p"
        return ShareKind(chosen)
