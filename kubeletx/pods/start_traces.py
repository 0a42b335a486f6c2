"""`StartTraces`: traces the start of each pod, from when the agent first sees it until it is ready or has ended.

    start pod ─┬─ bind
               ├─ prepare volumes
               ├─ ensure image       one for each container, as the next two
               ├─ create sandbox ─── create_sandbox, a span for each call to the runtime
               ├─ start unit ─┬───── create_unit
               │              └───── start_unit
               ├─ run post start
               └─ ready              from the first status with phase Running until the pod is ready

Each attempt of an action has a span. Pods that existed before this agent process are not traced. The module is imported
only if traces are configured, since it needs OpenTelemetry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

from kubeletx.api import KubeletxError, PodUid
from kubeletx.cri.tracing import CURRENT_SPAN, CurrentSpan
from kubeletx.kube.types.core import PodStatus

from .model.actions import Action, Look
from .model.facts import DesiredPod
from .model.history import reason_of, words_of
from .model.phase import FINAL
from .model.results import Bound, Result

SPANS_PER_POD: Final = 500
"""Further spans of a pod that never becomes ready are left out."""
NODE: Final = "k8s.node.name"
T = TypeVar("T")


class _Start:
    def __init__(self, root: Span) -> None:
        self.root = root
        self.ready: Span | None = None
        self.spans_left = SPANS_PER_POD


class StartTraces:
    """Makes the spans of pods' starts. Call all methods from the event loop's thread."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._starts: dict[PodUid, _Start] = {}

    def first_seen(self, desired: DesiredPod) -> None:
        """Begin the trace of a new pod; does nothing if the pod is not sampled."""
        pod = desired.pod
        attributes = {
            "k8s.namespace.name": pod.namespace,
            "k8s.pod.name": pod.name,
            "k8s.pod.uid": str(desired.uid),
            "kubeletx.source": desired.source,
        }
        root = self._tracer.start_span("start pod", context=Context(), attributes=attributes)
        if root.is_recording():
            self._starts[desired.uid] = _Start(root)

    async def action(
        self, desired: DesiredPod, action: Action, carry_out: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Carry out an action of the pod in a span, if the pod is starting."""
        if desired.deletion is not None:
            self._end(desired.uid, "the pod is ending")
        start = self._starts.get(desired.uid)
        if start is None or isinstance(action, Look):
            return await carry_out()
        with self._span(start, start.root, words_of(type(action))) as span:
            if (name := getattr(action, "name", "")) and span is not None:
                span.set_attribute("k8s.container.name", name)
            result = await carry_out()
            if isinstance(result, Bound):
                start.root.set_attribute("kubeletx.runtime", result.runtime)
            # Without the message: the output of a hook may contain secrets.
            if (reason := reason_of(result)) and span is not None:
                span.set_status(Status(StatusCode.ERROR, reason))
            return result

    def published(self, uid: PodUid, status: PodStatus) -> None:
        """End the trace if the pod is ready or has ended by this status."""
        start = self._starts.get(uid)
        if start is None:
            return
        if status.phase == "Running" and start.ready is None:
            start.ready = self._tracer.start_span("ready", context=set_span_in_context(start.root))
        if status.phase in FINAL:
            self._end(uid, (status.reason or "Failed") if status.phase == "Failed" else "")
        elif any(each.type == "Ready" and each.status == "True" for each in status.conditions):
            self._end(uid)

    def gone(self, uid: PodUid) -> None:
        """End the trace of a removed pod."""
        self._end(uid, "the pod is gone")

    def end_all(self) -> None:
        """End all traces, since the agent stops."""
        for uid in tuple(self._starts):
            self._end(uid, "the agent stopped")

    def _end(self, uid: PodUid, problem: str = "") -> None:
        start = self._starts.pop(uid, None)
        if start is None:
            return
        for span in (start.ready, start.root):
            if span is not None:
                span.set_status(Status(StatusCode.ERROR, problem) if problem else Status(StatusCode.OK))
                span.end()

    async def _call(self, start: _Start, parent: Span, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call to the runtime. A task that outlives the start it began in makes no spans."""
        with self._span(start, parent, name) if parent.is_recording() else _no_span():
            return await call()

    @contextmanager
    def _span(self, start: _Start, parent: Span, name: str) -> Iterator[Span | None]:
        if start.spans_left <= 0:
            yield None
            return
        start.spans_left -= 1
        span = self._tracer.start_span(name, context=set_span_in_context(parent))
        context = span.get_span_context()
        current = CurrentSpan(
            call=partial(self._call, start, span),
            traceparent=f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}",
        )
        token = CURRENT_SPAN.set(current)
        try:
            yield span
        except KubeletxError as error:
            span.set_status(Status(StatusCode.ERROR, str(error)))
            raise
        except asyncio.CancelledError:
            span.set_status(Status(StatusCode.ERROR, "cancelled"))
            raise
        finally:
            CURRENT_SPAN.reset(token)
            span.end()


@contextmanager
def _no_span() -> Iterator[None]:
    token = CURRENT_SPAN.set(None)
    try:
        yield
    finally:
        CURRENT_SPAN.reset(token)
