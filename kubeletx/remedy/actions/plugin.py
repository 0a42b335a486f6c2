"""Remedies of plugins: the same operation may be asked for twice and never acts twice, so status is asked before a repeat."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from kubeletx.api import (
    Clock,
    Internal,
    KubeletxError,
    NotFound,
    Remedy,
    RemedyFactory,
    RemedyRequest,
    RemedyResult,
    RemedyState,
)
from kubeletx.api.threads import BoundedThreadPool
from kubeletx.kube.client.resources import SECRETS
from kubeletx.kube.types.meta import ApiStruct

from ..model import MethodResult, RemedyOutcome, RemedyTask
from ..plugins import load_remedies
from .requests import done

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

P = ParamSpec("P")
R = TypeVar("R")

_STATUS_SECONDS: Final = 15.0
"""Deadline of the last question about an operation, after its own deadline."""


class _SecretData(ApiStruct, frozen=True, kw_only=True):
    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"_SecretData({', '.join(self.data)})"


class PluginRemedyHost:
    """Implements `kubeletx.api.RemedyHost`."""

    def __init__(self, name: str, client: KubeClient, clock: Clock, namespace: str) -> None:
        self.name, self.clock = name, clock
        self._client, self._namespace = client, namespace
        self._threads = BoundedThreadPool(name, owner="remedy")

    async def secret(self, name: str) -> Mapping[str, bytes]:
        """Return the decoded data of a Secret."""
        found = await self._client.get(SECRETS.path(self._namespace, name), _SecretData)
        return {key: base64.b64decode(text) for key, text in found.data.items()}

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` on a thread and return its result."""
        return await self._threads.run(function, *args, **kwargs)

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()


class PluginAction:
    """Runs methods of kind ``plugin``. Plugins are loaded when the first such method runs."""

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Clock,
        namespace: str,
        poll_seconds: float = 1.0,
        load: Callable[[], Mapping[str, RemedyFactory]] = load_remedies,
    ) -> None:
        """`poll_seconds`: time between two questions for the status. `load`: returns the factories by name; may block."""
        self._client, self._clock, self._namespace = client, clock, namespace
        self._poll_seconds = poll_seconds
        self._load = load
        self._loading: asyncio.Task[Mapping[str, RemedyFactory]] | None = None
        self._made: dict[str, Remedy] = {}

    async def run(self, task: RemedyTask) -> RemedyOutcome:
        """Carry the operation out. Errors of the plugin are never raised: the result is then what `status` answers."""
        try:
            remedy = await self._remedy(str(task.method.definition["name"]))
        except KubeletxError as error:
            result = MethodResult.UNKNOWN if task.is_repeat else MethodResult.FAILED
            return RemedyOutcome(result=result, message=str(error))
        request, end = _request(task), self._clock.monotonic() + task.method.seconds
        answer, asked = RemedyResult(state=RemedyState.NOT_STARTED), False
        if task.is_repeat:
            answer = await _ask(remedy.status, request, task.method.seconds)
        if answer.state is RemedyState.NOT_STARTED:
            asked = True
            answer = await _ask(remedy.remedy, request, end - self._clock.monotonic())
            if answer.state is RemedyState.UNKNOWN:
                later = await _ask(remedy.status, request, _STATUS_SECONDS)
                answer = answer if later.state is RemedyState.UNKNOWN else later
        while answer.state is RemedyState.RUNNING and (left := end - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, self._poll_seconds))
            answer = await _ask(remedy.status, request, _STATUS_SECONDS)
        message = answer.message or answer.state.value
        match answer.state:
            case RemedyState.DONE:
                return done(task, message)
            case RemedyState.FAILED:
                return RemedyOutcome(result=MethodResult.FAILED, message=message)
            case RemedyState.NOT_STARTED if asked:
                return RemedyOutcome(result=MethodResult.FAILED, message=message)
        return RemedyOutcome(result=MethodResult.UNKNOWN, message=message)

    async def _remedy(self, name: str) -> Remedy:
        """Return the remedy, made once. Raises NotFound or Internal."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load), name="remedy-plugins")
        factories = await asyncio.shield(self._loading)
        if name not in factories:
            known = ", ".join(sorted(factories)) or "none"
            raise NotFound(
                f"no plugin registers remedy {name!r} (registered: {known}); install its distribution"
            )
        if name not in self._made:
            host = PluginRemedyHost(name, self._client, self._clock, self._namespace)
            try:
                self._made[name] = factories[name](None, host)
            except Exception as error:
                raise Internal(f"remedy {name!r} cannot be made: {type(error).__name__}: {error}") from error
        return self._made[name]


def _request(task: RemedyTask) -> RemedyRequest:
    node = task.node
    return RemedyRequest(
        operation=task.operation.id,
        node=node.name,
        node_uid=node.metadata.uid,
        labels=node.metadata.labels,
        provider_id=node.spec.provider_id,
        boot_id=node.status.node_info.boot_id,
        step=task.step.value,
        reasons=task.fence.flow.reasons,
        parameters=task.method.parameters,
        seconds=task.method.seconds,
    )


async def _ask(
    method: Callable[[RemedyRequest], Awaitable[RemedyResult]], request: RemedyRequest, seconds: float
) -> RemedyResult:
    """Return the plugin's answer; UNKNOWN if it raises, answers nonsense or misses the deadline.

    A call that ignores its cancellation is abandoned after a second.
    """

    async def call() -> RemedyResult:
        answer = await method(request)
        if not isinstance(answer, RemedyResult):
            raise Internal(f"the plugin returned {type(answer).__name__} instead of RemedyResult")
        return answer

    task = asyncio.create_task(call(), name="remedy-plugin")
    try:
        await asyncio.wait({task}, timeout=max(0.0, seconds))
        if not task.done():
            return RemedyResult(state=RemedyState.UNKNOWN, message=f"no answer within {seconds:.3g} s")
        return task.result()
    except Exception as error:  # noqa: BLE001 - code of a plugin may raise anything
        text = str(error) if isinstance(error, KubeletxError) else f"{type(error).__name__}: {error}"
        return RemedyResult(state=RemedyState.UNKNOWN, message=text)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)
