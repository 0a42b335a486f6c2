"""The only file that changes the node's network: iproute2's ``ip``, in batches.

One ``ip -batch`` does what a whole step needs in a few milliseconds and stops at its first failing line. It runs
as a child of the loop, so it takes no thread of the runtime's door, and ``nsenter`` brings it into a pod's
namespace, so no thread of ours ever changes namespace. That is why no netlink library is used: pyroute2 would
be half a megabyte of code for six commands, and enters namespaces by forking the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.api import Internal, TimedOut, Unavailable

SECONDS = 20.0
_AT_ONCE = 8


class Ip:
    """Runs ``ip``; at most a few at once."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def make_namespace(self, path: Path) -> None:
        """A new network namespace, held by a mount on the file `path`; it has to exist."""
        await self._run("unshare", f"--net={path}", "true")

    async def hold_no_more(self, path: Path) -> None:
        """Take the mount off; the namespace goes when nothing is in it."""
        await self._run("umount", "--lazy", str(path))

    async def batch(self, lines: Sequence[str], *, netns: Path | None = None) -> None:
        """Run the lines in order, in the node's namespace or in `netns`; the first failure raises Unavailable."""
        if lines:
            text = "".join(f"{line}\n" for line in lines).encode()
            await self._run(*_enter(netns), "ip", "-batch", "-", stdin=text)

    async def find_links(self, *names: str, netns: Path | None = None) -> dict[str, dict[str, Any]]:
        """Those of the devices that exist, as ``ip -json -details address`` shows them; all for no name."""
        output = await self._run(*_enter(netns), "ip", "-json", "-details", "address", "show")
        try:
            listed = msgspec.json.decode(output or b"[]", type=list[dict[str, Any]])
        except msgspec.DecodeError as error:
            raise Internal(f"network: ip printed something else than JSON: {error}") from error
        return {
            link["ifname"]: link
            for link in listed
            if "ifname" in link and (not names or link["ifname"] in names)
        }

    async def _run(self, *command: str, stdin: bytes = b"") -> bytes:
        async with self._slots:
            process = await self._start(*command)
            try:
                async with asyncio.timeout(self._seconds):
                    output, errors = await process.communicate(stdin)
            except TimeoutError as error:
                raise TimedOut(
                    f"network: {' '.join(command)} did not end within {self._seconds:g} s"
                ) from error
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        if process.returncode != 0:
            said = errors.decode(errors="replace").strip().splitlines()
            words = "; ".join(said[:2]) or f"exit code {process.returncode}"
            raise Unavailable(f"network: {' '.join(command)}: {words}")
        return output

    async def _start(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        found = shutil.which(program, path=path)
        if found is None:
            raise Unavailable(
                f"network: program {program} is missing; install Debian's iproute2 and util-linux"
            )
        try:
            return await asyncio.create_subprocess_exec(
                found,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={"PATH": path, "LANG": "C"},
            )
        except OSError as error:
            raise Unavailable(f"network: cannot run {program}: {error.strerror}") from error


def _enter(netns: Path | None) -> tuple[str, ...]:
    return () if netns is None else ("nsenter", f"--net={netns}")
