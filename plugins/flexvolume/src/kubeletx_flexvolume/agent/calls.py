"""`DriverCalls`: answers init, mount and unmount of the driver, ``status`` of the agent, ``attachments`` of all nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import structlog

from kubeletx.api import InvalidPod, KubeletxError

from ..attachments.views import COLUMNS
from ..driver.program import MAX_REPLY, VERSION
from .operations import Operations
from .options import parse_options
from .paths import parse_target
from .wire import FAILURE, NOT_SUPPORTED, SUCCESS, DriverRequest, reply
from .worker import AgentTools

log = structlog.get_logger(__name__)


class DriverCapabilities(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Capabilities that ``init`` reports to kubelets. Source: FlexVolume specification."""

    attach: bool = False
    selinux_relabel: bool = False
    fs_group: bool = True
    supports_metrics: bool = True
    requires_fs_resize: bool = msgspec.field(default=True, name="requiresFSResize")
    block_volumes: bool = True
    """A capability of kubeletx: a target below ``volumeDevices`` becomes the device. A kubelet ignores it."""


class DriverCalls:
    """Answers calls. `state`: returns the agent's state for ``status``. `attachments`: `panel_rows`."""

    def __init__(
        self,
        operations: Operations,
        tools: AgentTools,
        *,
        capabilities: DriverCapabilities,
        state: Callable[[], Mapping[str, Any]],
        attachments: Callable[[], Awaitable[list[list[str]]]],
        records_seconds: float = 5.0,
        kept_seconds: float = 60.0,
    ) -> None:
        """`records_seconds`: longest time to read the records. `kept_seconds`: time for which their reply is given again.

        A page asks every 10 s, and in a large cluster the records are much for its API server.
        """
        self.handshakes: dict[str, str] = {}
        """Version of the driver of each directory from which ``init`` was called, since the agent's start."""
        self.has_handshake = asyncio.Event()
        """Set with the first handshake: a kubelet has found the driver."""
        self._operations = operations
        self._tools = tools
        self._capabilities = capabilities
        self._state = state
        self._attachments = attachments
        self._records_seconds = records_seconds
        self._kept_seconds = kept_seconds
        self._kept: tuple[float, bytes] = (float("-inf"), b"")
        """When the records were read, and the reply with them."""

    async def answer(self, request: DriverRequest, name: str) -> bytes:
        """Return the text of the reply. `name`: the socket that the request came from."""
        began = time.monotonic()
        try:
            match request.call, request.arguments:
                case "init", ():
                    return self._init(request, name)
                case "mount", (target, options):
                    await self._mount(target, options)
                case "unmount", (target,):
                    await self._operations.unmount(parse_target(target, self._tools.kubelet_roots))
                case "status", ():
                    return reply(SUCCESS, agent=self._state())
                case "attachments", ():
                    return await self._show_attachments()
                case "init" | "mount" | "unmount", arguments:
                    problem = f"{len(arguments)} arguments"
                    raise InvalidPod(obj=f"call {request.call}", field="arguments", problem=problem)
                case _:
                    return reply(NOT_SUPPORTED)
        except KubeletxError as error:
            log.warning("Failed a call of the driver", call=request.call, err=str(error))
            return reply(FAILURE, str(error))
        except Exception as error:  # a bug; the kubelet gets an answer, which contains nothing of the call
            log.exception("Failed a call of the driver", call=request.call)
            return reply(FAILURE, f"{type(error).__name__} in the storage agent; see its log")
        elapsed = round(time.monotonic() - began, 3)
        log.info("Answered a call of the driver", call=request.call, target=target, elapsed_seconds=elapsed)
        return reply(SUCCESS)

    def _init(self, request: DriverRequest, name: str) -> bytes:
        if name not in self.handshakes:
            log.info("A kubelet found the driver", directory=name, driver=request.driver)
        self.handshakes[name] = request.driver
        self.has_handshake.set()
        capabilities = msgspec.to_builtins(self._capabilities)
        return reply(SUCCESS, capabilities=capabilities, agentVersion=VERSION)

    async def _show_attachments(self) -> bytes:
        """Return as many rows as fit in a reply. A failure is not logged, since calls come often."""
        now = time.monotonic()
        if now < self._kept[0] + self._kept_seconds:
            return self._kept[1]
        try:
            async with asyncio.timeout(self._records_seconds):
                rows = await self._attachments()
        except (KubeletxError, TimeoutError) as error:
            late = f"the attachment records were not read within {self._records_seconds:g} s"
            return reply(FAILURE, str(error) or late)
        more: list[list[str]] = []
        while len(text := reply(SUCCESS, rows=[COLUMNS, *rows, *more])) > MAX_REPLY:
            rows = rows[: len(rows) // 2]
            more = [["more: kubeletx-flexvolume attachments", *[""] * (len(COLUMNS) - 1)]]
        self._kept = now, text
        return text

    async def _mount(self, target: str, options: str) -> None:
        checked = parse_target(target, self._tools.kubelet_roots)
        request = parse_options(options, checked, self._tools.backends)
        await self._operations.mount(request, checked)
