"""`CniPodNetwork`: implements `kubeletx.api.PodNetwork` by executing CNI plugins.

    add     journal "begun" → ADD of each plugin, in order → journal the result → return it
    check   the network namespace exists → CHECK of each plugin (from CNI 0.4.0 on)
    delete  journal "deleting" → DEL of each plugin, in reverse → remove the entry; repeated until it succeeds

All runtimes of the node share one instance, and so one network configuration and one address management.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import structlog

from kubeletx.api import (
    BoundedThreadPool,
    Clock,
    Internal,
    KubeletxError,
    PodAddress,
    PodUid,
    TimedOut,
    Unavailable,
)
from kubeletx.api.backoff import Backoff
from kubeletx.linux.json_files import JsonFiles
from kubeletx.linux.programs import ProgramResult, run_program

from .config import find_plugin, load_config, plugin_input
from .journal import CniAttachment, to_address

log = structlog.get_logger(__name__)

INTERFACE = "eth0"
PLUGIN_SECONDS = 60.0
AT_ONCE = 8
_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")


class CniPodNetwork:
    """Attaches pods to the CNI network.

    `state_dir`: directory of the journal. `owner`: prefix of the container ids that plugins get, so that two agents do
    not release each other's addresses.
    """

    def __init__(
        self,
        *,
        conf_dir: Path,
        bin_dirs: Sequence[Path],
        state_dir: Path,
        owner: str,
        clock: Clock,
        plugin_seconds: float = PLUGIN_SECONDS,
    ) -> None:
        self._conf_dir = conf_dir
        self._bin_dirs = tuple(bin_dirs)
        self._owner = owner
        self._clock = clock
        self._plugin_seconds = plugin_seconds
        self._journal = JsonFiles(state_dir, CniAttachment, version=1, name=lambda entry: entry.uid)
        stored = self._journal.load()
        for problem in stored.problems.values():
            log.warning("Failed to read a pod network record", err=str(problem))
        self._entries: dict[PodUid, CniAttachment] = {
            entry.uid: _half_made_goes(entry) for entry in stored.values.values()
        }
        self._locks: WeakValueDictionary[PodUid, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._disk = BoundedThreadPool("pod-network", threads=AT_ONCE * 2)
        self._delete_wanted = asyncio.Event()

    @property
    def attachments(self) -> Mapping[PodUid, CniAttachment]:
        """CNI attachments by pod UID, as this object records them on disk; a live, read-only view."""
        return MappingProxyType(self._entries)

    def close(self) -> None:
        """Let the idle threads end; no method may be called afterwards."""
        self._disk.close()

    # --- PodNetwork ---

    async def add(
        self, uid: PodUid, name: str, namespace: str, netns: str, ports: list[dict[str, Any]]
    ) -> PodAddress:
        if _ID.fullmatch(uid) is None:
            raise Internal(f"pod network: {uid!r} cannot be a CNI container id")
        async with self._lock(uid):
            old = self._entries.get(uid)
            if old is not None:
                if old.result is not None and old.netns == netns and not old.deleting:
                    return to_address(old.result, netns=netns, interface=old.interface)
                await self._delete(old)
            config = await self._disk.run(load_config, self._conf_dir)
            for plugin in config.plugins:  # before the ADD: without one of the plugins, a DEL would fail too
                find_plugin(plugin["type"], self._bin_dirs)
            entry = CniAttachment(
                uid=uid,
                name=name,
                namespace=namespace,
                netns=netns,
                interface=INTERFACE,
                ports=ports,
                config=config,
            )
            await self._save(entry)
            try:
                result = await self._add(entry)
            except BaseException:
                await self._give_back(entry)
                raise
            await self._save(msgspec.structs.replace(entry, result=result))
            return to_address(result, netns=netns, interface=entry.interface)

    async def problem(self) -> str:
        try:
            config = await self._disk.run(load_config, self._conf_dir)
            for plugin in config.plugins:
                find_plugin(plugin["type"], self._bin_dirs)
        except KubeletxError as error:
            return error.message
        return ""

    async def check(self, uid: PodUid) -> bool:
        async with self._lock(uid):
            entry = self._entries.get(uid)
            if entry is None or entry.result is None or entry.deleting or not _exists(entry.netns):
                return False
            if entry.config.disable_check or not entry.config.supports("0.4.0"):  # the first with CHECK
                return True
            try:
                for plugin in entry.config.plugins:
                    await self._run("CHECK", entry, plugin, entry.result)
            except Unavailable as error:
                log.debug("Checked pod network", pod_uid=uid, err=str(error))
                return False
            return True

    async def delete(self, uid: PodUid) -> None:
        async with self._lock(uid):
            entry = self._entries.get(uid)
            if entry is not None:
                await self._delete(entry)

    async def run(self) -> None:
        """Repeat failed deletions, and delete attachments that an earlier process left unfinished, until cancelled."""
        if any(entry.deleting for entry in self._entries.values()):
            self._delete_wanted.set()
        backoff = Backoff(1.0, 60.0)
        while True:
            await self._delete_wanted.wait()
            self._delete_wanted.clear()
            for uid in [entry.uid for entry in self._entries.values() if entry.deleting]:
                try:
                    await self._delete_again(uid)
                except KubeletxError as error:
                    log.debug("Failed to delete a pod network attachment", pod_uid=uid, err=str(error))
            if any(entry.deleting for entry in self._entries.values()):
                self._delete_wanted.set()
                await self._clock.sleep(backoff.next())
            else:
                backoff.reset()

    # --- private ---

    async def _delete_again(self, uid: PodUid) -> None:
        """Repeat the DEL, unless the pod was attached again meanwhile."""
        async with self._lock(uid):
            entry = self._entries.get(uid)
            if entry is not None and entry.deleting:
                await self._delete(entry)

    def _lock(self, uid: PodUid) -> asyncio.Lock:
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock

    async def _add(self, entry: CniAttachment) -> dict[str, Any]:
        result: dict[str, Any] | None = None
        for plugin in entry.config.plugins:
            output = await self._run("ADD", entry, plugin, result)
            try:
                result = msgspec.json.decode(output, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Internal(
                    f"pod network: CNI plugin {plugin['type']!r} gave no result: {error}"
                ) from error
        assert result is not None
        return result

    async def _delete(self, entry: CniAttachment) -> None:
        entry = msgspec.structs.replace(entry, deleting=True)
        await self._save(entry)
        try:
            # The order of DEL in the CNI specification: the reverse of ADD.
            for plugin in reversed(entry.config.plugins):
                # The CNI specification has prevResult for DEL since 0.4.0.
                previous = entry.result if entry.config.supports("0.4.0") else None
                await self._run("DEL", entry, plugin, previous)
        except BaseException:
            self._delete_wanted.set()
            raise
        try:
            await self._disk.run(self._journal.remove, entry.uid)
        except OSError as error:
            self._delete_wanted.set()
            raise _unwritten(error) from error
        self._entries.pop(entry.uid, None)

    async def _give_back(self, entry: CniAttachment) -> None:
        """Run DEL after a failed ADD, to release what some of the plugins have allocated."""
        try:
            # Shielded: the caller may be cancelled already, and the address would stay allocated.
            await asyncio.shield(asyncio.create_task(self._delete(entry), name=f"cni-del-{entry.uid}"))
        except KubeletxError as error:
            log.warning(
                "Failed to undo a pod network attachment; trying again", pod_uid=entry.uid, err=str(error)
            )

    async def _save(self, entry: CniAttachment) -> None:
        try:
            await self._disk.run(self._journal.put, entry)
        except OSError as error:
            raise _unwritten(error) from error
        self._entries[entry.uid] = entry

    async def _run(
        self, command: str, entry: CniAttachment, plugin: dict[str, Any], previous: dict[str, Any] | None
    ) -> bytes:
        program = find_plugin(plugin["type"], self._bin_dirs)
        netns = entry.netns
        if command == "DEL" and not _exists(netns):
            netns = ""  # the namespace is gone: the plugin releases resources outside it, such as addresses
        stdin = plugin_input(
            entry.config, plugin, capabilities={"portMappings": entry.ports}, previous=previous
        )
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"{self._owner}-{entry.uid}",
            "CNI_NETNS": netns,
            "CNI_IFNAME": entry.interface,
            "CNI_PATH": ":".join(str(d) for d in self._bin_dirs),
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE={entry.namespace};K8S_POD_NAME={entry.name};"
            f"K8S_POD_INFRA_CONTAINER_ID={self._owner}-{entry.uid};K8S_POD_UID={entry.uid}",
        }
        what = f"pod network: CNI plugin {plugin['type']!r}: {command}"
        try:
            async with self._slots:
                result = await run_program(
                    [str(program)], stdin=stdin, seconds=self._plugin_seconds, environment=environment
                )
        except TimedOut as error:
            raise TimedOut(f"{what} did not end within {self._plugin_seconds:g} s") from error
        except OSError as error:
            raise Unavailable(f"{what}: {error.strerror}") from error
        if result.exit_code != 0:
            raise Unavailable(f"{what}: {_message(result)}")
        return result.stdout


def _half_made_goes(entry: CniAttachment) -> CniAttachment:
    """Mark the entry for deletion if it has no result: a crash interrupted its ADD, whose progress is unknown."""
    return entry if entry.result is not None else msgspec.structs.replace(entry, deleting=True)


def _exists(netns: str) -> bool:
    return Path(netns).exists()


def _message(result: ProgramResult) -> str:
    """Return the plugin's own message from its standard output, where CNI errors are JSON."""
    try:
        said = msgspec.json.decode(result.stdout, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _first_line(result)
    return "; ".join(str(said[key]) for key in ("msg", "details") if said.get(key)) or _first_line(result)


def _first_line(result: ProgramResult) -> str:
    text = (result.stdout.strip() or result.stderr.strip()).decode(errors="replace").partition("\n")[0]
    return text[:200] or f"exit code {result.exit_code}"


def _unwritten(error: OSError) -> Unavailable:
    return Unavailable(f"pod network: its journal {error.filename or ''} cannot be written: {error.strerror}")
