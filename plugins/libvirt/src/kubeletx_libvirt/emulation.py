"""`Emulation`: what emulators on this node may use, found out once and then cached: KVM, and access to their disks.

Both need a minute at worst, so they run in tasks, and the callers wait only where a machine needs the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import libvirt

from kubeletx.api import KubeletxError, ObjectRef
from kubeletx_libvirt.accelerator import check_kvm
from kubeletx_libvirt.access import emulator_gid, let_group_in
from kubeletx_libvirt.images.service import LibvirtImages
from kubeletx_libvirt.machinery import Machinery, Part
from kubeletx_libvirt.records import state_file_errors

UNPROVEN_SECONDS = 300.0
"""Time for which a result of the check of KVM counts that proves nothing; a creation after it checks again."""


class Emulation(Part):
    """Accelerator and group of the emulators of one libvirt."""

    def __init__(self, machinery: Machinery, images: LibvirtImages) -> None:
        super().__init__(machinery)
        self._images = images
        self._kvm: asyncio.Task[str] | None = None
        self._group: asyncio.Task[int | None] | None = None
        self._check_again_at = math.inf
        self._warned_why = ""

    def open(self) -> None:
        """Start the check of KVM, unless it was started before."""
        self._check_kvm()

    async def close(self) -> None:
        """Cancel the tasks; later calls begin again."""
        tasks = (self._kvm, self._group)
        self._kvm = self._group = None
        for task in tasks:
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, KubeletxError):
                    await task

    async def accelerator(self) -> str:
        """Return the accelerator of new machines: kvm, qemu, or test for libvirt's test driver."""
        return await asyncio.shield(self._check_kvm())

    async def gid(self) -> int | None:
        """Return the group that emulators need to reach their disks; None if they need none.

        The first call gives the group access and caches the answer: libvirt examines all emulators on the
        node before its first answer, which may take a minute.
        """
        if self._group is None or _failed(self._group):
            self._group = asyncio.create_task(self._let_emulators_in(), name="libvirt-emulators")
        return await asyncio.shield(self._group)

    def _check_kvm(self) -> asyncio.Task[str]:
        is_over = self._kvm is not None and self._kvm.done() and self._now() >= self._check_again_at
        if self._kvm is None or is_over or _failed(self._kvm):
            self._kvm = asyncio.create_task(self._choose_accelerator(), name="libvirt-kvm-check")
        return self._kvm

    async def _choose_accelerator(self) -> str:
        if self._connection.url.startswith("test:"):
            return "test"
        if self._settings.accelerator != "auto":
            return self._settings.accelerator
        with state_file_errors(self._host.state_directory):
            verdict = await check_kvm(self._host, self._host.state_directory)
        self._check_again_at = math.inf if verdict.holds else self._now() + UNPROVEN_SECONDS
        if verdict.works:
            return "kvm"
        if verdict.why != self._warned_why:
            self._warned_why = verdict.why
            self._warn("EmulatedAccelerator", f"Machines are emulated, which is slow: {verdict.why}")
        return "qemu"

    async def _let_emulators_in(self) -> int | None:
        gid = None
        if not self._connection.is_embedded:
            gid = emulator_gid(await self._connection.use(libvirt.virConnect.getCapabilities))
        await self._images.share(gid)
        if gid is not None:
            try:
                closed = await self._host.blocking(let_group_in, self._host.state_directory, gid)
            except OSError as error:  # an agent without root; emulators may have access anyway
                closed = f"{error.filename}: {error.strerror}"
            if closed is not None:
                self._warn("EmulatorsShutOut", f"Machines cannot reach their disks: {closed}")
        return gid

    def _now(self) -> float:
        return self._host.clock.monotonic()

    def _warn(self, reason: str, message: str) -> None:
        ref = ObjectRef(kind="Runtime", name=self._runtime)
        self._host.events.record(ref, type="Warning", reason=reason, message=message)


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
