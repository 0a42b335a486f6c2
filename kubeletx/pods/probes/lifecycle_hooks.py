"""Lifecycle hooks: postStart and preStop (T1 to T3 in docs/kubelet-parity.md).

    exec       runs a command in the container; exit code 0 is success
    httpGet    any HTTP answer is success; HTTPS is repeated as HTTP if the server does not speak TLS
    tcpSocket  success if the connection opens
    sleep      waits; always success

`run_hook` returns a hook's failure and does not raise it; the caller decides what follows (postStart: the container is
killed; preStop: the stop goes on). A failed hook is not repeated, since it may not be idempotent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from kubeletx.api import Clock, InvalidPod, KubeletxError, UnitId, first_of
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Container, HTTPGetAction, LifecycleHandler
from kubeletx.runtimes.registry import RuntimeRegistry

from ..model.facts import PodFacts
from ..pod_events import PodEvents
from .all_probes import RuntimeExecFinder
from .ask import ask_tcp, request_of
from .exec import ExecFinder
from .http_get import GetFailed, HttpGet, get
from .outcome import ProbeOutcome
from .targets import pod_ip

MINIMUM_STOP_SECONDS = 2
"""Minimum time for the stop itself after preStop (docs/kubelet-parity.md, row T2)."""
UNLIMITED_SECONDS = 24 * 3600.0
"""Limit for hooks without a timeout, such as postStart. (A deletion of the pod cancels postStart.)"""
OUTPUT_LIMIT_BYTES = 1024

_ONLY_FOR_TLS = frozenset({"authorization"})


class HookTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The container that a hook belongs to. `pod_ip`: address for network hooks that name no host."""

    container: Container
    unit_id: UnitId
    pod_ip: str = ""


def stop_seconds(grace_seconds: int, hook_seconds: float) -> int:
    """Return how many seconds of the grace period are left for the stop after preStop took `hook_seconds`.

    At least 2, or the whole grace period if that is shorter.
    """
    if grace_seconds <= 0:
        return 0
    return max(round(grace_seconds - hook_seconds), min(grace_seconds, MINIMUM_STOP_SECONDS))


async def run_hook(
    handler: LifecycleHandler,
    target: HookTarget,
    *,
    finder: ExecFinder,
    clock: Clock,
    timeout_seconds: float | None = None,
    on_fallback: Callable[[str], None] | None = None,
) -> str:
    """Run the hook to its end, but at most `timeout_seconds` (None: `UNLIMITED_SECONDS`).

    Return the text of its failure; empty if it succeeded. `finder`: gives exec hooks the runtime's exec. `on_fallback`:
    called with the text of an event if an HTTPS request succeeded only as HTTP.
    """
    limit = UNLIMITED_SECONDS if timeout_seconds is None else timeout_seconds
    name = f"hook {target.container.name} {target.unit_id}"
    work = _run(handler, target, finder, clock, limit, on_fallback)
    # Hooks of types httpGet and sleep have no limit of their own.
    ended, _ = await first_of(name, work, clock.sleep(limit))
    return f"ran longer than {limit:g}s" if ended is None else str(ended.result())


async def _run(
    handler: LifecycleHandler,
    target: HookTarget,
    finder: ExecFinder,
    clock: Clock,
    limit: float,
    on_fallback: Callable[[str], None] | None,
) -> str:
    if handler.exec is not None:
        return await _exec(handler.exec.command, target, finder, limit)
    if handler.http_get is not None:
        return await _http(handler.http_get, target, on_fallback)
    if handler.tcp_socket is not None:
        answer = await ask_tcp(handler.tcp_socket, target.container, target.pod_ip, limit)
        return "" if answer.result is ProbeOutcome.SUCCESS else answer.message or "the hook failed"
    if handler.sleep is not None:
        await clock.sleep(handler.sleep.seconds)
        return ""
    return "the hook names no handler"


async def _exec(command: tuple[str, ...], target: HookTarget, finder: ExecFinder, limit: float) -> str:
    exec_sync = finder.find()
    if exec_sync is None:
        return "the runtime cannot run commands now"
    try:
        result = await exec_sync(target.unit_id, command, limit)
    except KubeletxError as error:
        return error.message or "the hook failed"
    if result.exit_code == 0:
        return ""
    output = (result.stdout + result.stderr)[:OUTPUT_LIMIT_BYTES].decode(errors="replace").strip()
    text = f"command exited with code {result.exit_code}"
    return f"{text}: {output}" if output else text


async def _http(action: HTTPGetAction, target: HookTarget, on_fallback: Callable[[str], None] | None) -> str:
    try:
        port = 443 if (action.scheme or "").upper() == "HTTPS" else 80
        request = request_of(action, target.container, target.pod_ip, default_port=port)
    except InvalidPod as error:
        return str(error)
    if not request.host:
        return "the pod has no address"
    try:
        await get(request)
    except GetFailed as error:
        if not error.is_plain_http:
            return error.message or "the hook failed"
        again = await _http_again(request)
        if not again and on_fallback is not None:
            place = f"{request.host}:{request.port}"
            on_fallback(
                f"request to HTTPS lifecycle hook {place} got HTTP response, retry with HTTP succeeded"
            )
        return again
    return ""


async def _http_again(request: HttpGet) -> str:
    """Repeat the request without TLS, and without the Authorization header, which must not be sent in clear text."""
    headers = tuple((n, v) for n, v in request.headers if n.lower() not in _ONLY_FOR_TLS)
    try:
        await get(replace(request, scheme="http", headers=headers))
    except GetFailed as error:
        return error.message or "the hook failed"
    return ""


class UnitHooks:
    """Runs lifecycle hooks of containers on any runtime.

    `host_ip`: address to which network hooks of pods with hostNetwork connect.
    """

    def __init__(self, registry: RuntimeRegistry, clock: Clock, host_ip: str = "") -> None:
        self._registry = registry
        self._clock = clock
        self._host_ip = host_ip

    async def run(
        self,
        handler: LifecycleHandler,
        container: Container,
        unit_id: UnitId,
        *,
        facts: PodFacts,
        host_network: bool,
        seconds: float | None,
        events: PodEvents,
    ) -> str:
        """Run the hook once; return the text of its failure, empty after success.

        `seconds`: deadline; None: a day (`UNLIMITED_SECONDS`). `events`: gets an event if an HTTPS hook was repeated as
        HTTP.
        """
        return await run_hook(
            handler,
            HookTarget(
                container=container,
                unit_id=unit_id,
                pod_ip=self._host_ip if host_network else pod_ip(facts),
            ),
            finder=RuntimeExecFinder(self._registry, facts.runtime),
            clock=self._clock,
            timeout_seconds=seconds,
            on_fallback=partial(events.warning, Event.LIFECYCLE_HTTP_FALLBACK, container=container.name),
        )
