"""The pod sources of plugins: the tasks that run them, and the sink that converts their mappings to pods.

    mapping ─► decode ─► defaults ─► validate ─► identity ─► manager
       └──── refused, with the field ◄───┘           └──► accepted, or waits for the source that has the name

A source identifies its pods by namespace and name. A source that fails is restarted; its pods continue to run.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Clock, Internal, InvalidPod, KubeletxError, PodAnswer, PodOutcome, TimedOut
from kubeletx.kube.types.core import Pod
from kubeletx.pods.model.sources import PodSink, Refused, WaitsFor
from kubeletx.static.manifest import ManifestReader

from .callbacks import Callbacks
from .pod_mappings import key_of, plain

log = structlog.get_logger(__name__)

RESTART_SECONDS: Final = 10.0
"""Delay between the end of a source's `run` and the next call of it."""


class SourceParts(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that the pod sources of all plugins share.

    `pods`: gets the pods of all sources (the pod manager). `on_failure`: called with a source's name and the error that
    ended its `run`.
    """

    pods: PodSink
    reader: ManifestReader
    clock: Clock
    on_failure: Callable[[str, Exception], None]


class PodSources:
    """Runs the pod sources of all plugins.

    If a plugin's factory failed, nothing runs for it. Pods that this plugin delivered before the agent restarted continue
    to run.
    """

    def __init__(self, sources: Sequence[Callbacks], *, sync_seconds: float) -> None:
        """`sync_seconds`: a source that has not called `synced` within this time is degraded until it does."""
        self._sources = tuple(sources)
        self._sync_seconds = sync_seconds

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(callbacks.registration.name for callbacks in self._sources)

    def feeds(self, parts: SourceParts) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Return a coroutine function for each source, by name; the agent runs each as a task.

        Each function calls the source's `run`, and calls it again after a failure or a return, until it is cancelled.
        """
        return {
            callbacks.registration.name: partial(self._keep, callbacks, parts)
            for callbacks in self._sources
            if callbacks.is_made
        }

    async def _keep(self, callbacks: Callbacks, parts: SourceParts) -> None:
        name, source = callbacks.registration.name, callbacks.made
        sink = Sink(callbacks.registration.label, name, parts, on_synced=partial(callbacks.recovered, "run"))
        while True:
            sink.begin()
            forget = parts.clock.call_at(
                parts.clock.monotonic() + self._sync_seconds, partial(self._not_synced, callbacks, sink)
            )
            try:
                await callbacks.run("run", partial(source.run, sink))
                error: KubeletxError = callbacks.failed("run", Internal(f"pod source {name}: run returned"))
            except KubeletxError as raised:
                error = raised
            finally:
                forget()
            parts.on_failure(name, error)
            await parts.clock.sleep(RESTART_SECONDS)

    def _not_synced(self, callbacks: Callbacks, sink: Sink) -> None:
        if not sink.is_synced:
            problem = f"did not set all its pods within {self._sync_seconds:g} s"
            callbacks.failed("run", TimedOut(f"{callbacks.registration.label}: run: {problem}"))


class Sink:
    """Converts the pods of one source and passes them to the pod manager. Implements `kubeletx.api.PodSourceSink`."""

    def __init__(self, label: str, source: str, parts: SourceParts, *, on_synced: Callable[[], None]) -> None:
        self._label = label
        self._source = source
        self._parts = parts
        self._on_synced = on_synced
        self._thread = threading.get_ident()
        self._pods: dict[tuple[str, str], Pod] = {}
        """Pods of the source, by the namespace and name in the source's mapping."""
        self._refused: dict[tuple[str, str], str] = {}
        """Invalid pods: namespace and name → origin under which the error was reported to the manager."""
        self._seen: set[tuple[str, str]] = set()
        self.is_synced = False

    def begin(self) -> None:
        """Prepare for a new call of the source's `run`: the source is not synced, and has set no pod yet."""
        self._seen = set()
        self.is_synced = False

    def set(self, pod: Mapping[str, Any]) -> PodOutcome:
        """Pass the pod to the pod manager; return whether it was accepted, refused, or waits for another pod.

        Implements `PodSourceSink.set`.
        """
        self._check_thread()
        key = key_of(pod)
        self._seen.add(key)
        try:
            made = self._decode(pod)
        except InvalidPod as error:
            return self._refuse(key, error)
        self._forgive(key)
        before = self._pods.get(key)
        if before is not None and before.uid != made.uid:
            self._parts.pods.remove(self._source, before.uid)
        if before is not None and before.uid == made.uid:
            made = before  # it keeps the time at which it was first seen
        match self._parts.pods.update(self._source, made):
            case Refused(message=message):
                self._pods.pop(key, None)
                return PodOutcome(answer=PodAnswer.REFUSED, message=message)
            case WaitsFor(source=source) as waits if source != self._source:
                self._pods[key] = made
                message = f"pod {made.ref} {waits.message}"
                return PodOutcome(
                    answer=PodAnswer.WAITS, uid=str(made.uid), waits_for=source, message=message
                )
        self._pods[key] = made
        return PodOutcome(answer=PodAnswer.ACCEPTED, uid=str(made.uid))

    def refuse(self, namespace: str, name: str, problem: str) -> PodOutcome:
        """Refuse a pod that an isolated source cannot send, since it is not JSON. `problem`: why."""
        self._check_thread()
        self._seen.add((namespace, name))
        return self._refuse((namespace, name), self._not_json(problem))

    def remove(self, namespace: str, name: str, *, grace_seconds: int | None = None) -> bool:
        """End the pod with this namespace and name; returns False if the source has no such pod.

        `grace_seconds` None: the pod's own grace period.
        """
        self._check_thread()
        key = (namespace, name)
        self._forgive(key)
        pod = self._pods.pop(key, None)
        if pod is None:
            return False
        self._parts.pods.remove(self._source, pod.uid, grace_seconds)
        return True

    def synced(self) -> None:
        """Report that the source has set all its pods; end earlier pods that this run has not set."""
        self._check_thread()
        if not self.is_synced:
            self.is_synced = True
            for key in [key for key in self._pods if key not in self._seen]:
                self.remove(*key)
            for key in [key for key in self._refused if key not in self._seen]:
                self._forgive(key)
            self._parts.pods.synced(self._source)
        self._on_synced()

    def _decode(self, pod: Mapping[str, Any]) -> Pod:
        try:
            data = json.dumps(pod, default=plain, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise self._not_json(str(error)) from error
        manifest = self._parts.reader.read(
            data, origin=self._label, source=self._source, seen_at=self._parts.clock.now()
        )
        if len(manifest.pods) != 1:
            problem = f"holds {len(manifest.pods)} pods"
            raise InvalidPod(obj=self._label, field="items", problem=problem, fix="set each pod by itself")
        return manifest.pods[0]

    def _not_json(self, problem: str) -> InvalidPod:
        return InvalidPod(
            obj=self._label, field="", problem=f"is not JSON: {problem}", fix="give a v1 Pod of JSON values"
        )

    def _refuse(self, key: tuple[str, str], error: InvalidPod) -> PodOutcome:
        origin = self._refused.setdefault(key, f"{self._label} {key[0]}/{key[1]}")
        known = self._pods.get(key)
        self._parts.pods.invalid(self._source, origin, error, known.uid if known is not None else None)
        return PodOutcome(answer=PodAnswer.REFUSED, field=error.field, message=str(error))

    def _forgive(self, key: tuple[str, str]) -> None:
        if (origin := self._refused.pop(key, None)) is not None:
            self._parts.pods.valid(self._source, origin)

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError("a pod source calls its sink from the event loop only")
