"""Pod commands of the admin socket: list, watch, apply, delete, logs and streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
    InvalidConfig,
    NotFound,
    SandboxState,
    Session,
    StreamRequest,
    StreamUrl,
    SupportsAttach,
    SupportsCheckpoint,
    SupportsExec,
    SupportsPortForward,
    TimedOut,
    UnitId,
    UnitState,
    Unsupported,
)
from kubeletx.kube.types.core import ObjectMeta, Pod, PodStatus
from kubeletx.pods import (
    UNKNOWN_SOURCE,
    DesiredPod,
    PodExecutor,
    PodFacts,
    PodManager,
    PodWorker,
    ephemeral_units,
    init_units,
    regular_units,
)
from kubeletx.pods.model.sources import APPLIED
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.server.views import (
    ApplyResult,
    DeleteOptions,
    LogOptions,
    PodChange,
    PodHistory,
    PodTarget,
)
from kubeletx.static.applied import AppliedSource

from .awake import kept_awake
from .logs import PodLogs
from .present import present
from .waiting import require_seen, wait_for_worker
from .watching import Latest

T = TypeVar("T")

TELL_SECONDS = 30.0
"""Added to the deadline of a checkpoint call, so that the runtime can report that it timed out itself."""


class PodBackend:
    """Carries out the pod commands of the admin socket. Implements `PodVerbs`."""

    def __init__(
        self,
        manager: PodManager,
        services: PodExecutor,
        applied: AppliedSource,
        logs: PodLogs,
        *,
        streams_thaw: bool = True,
        standby_delay_seconds: float = 0.0,
        is_cordoned: Callable[[], bool] = lambda: False,
    ) -> None:
        """`streams_thaw`: exec, attach and forwarded connections thaw a frozen pod; False: they fail.

        `standby_delay_seconds`: time for which the pod runs on after the last of them. `is_cordoned`: returns True while
        the node refuses new pods.
        """
        self._manager = manager
        self._services = services
        self._applied = applied
        self._logs = logs
        self._streams_thaw = streams_thaw
        self._standby_delay_seconds = standby_delay_seconds
        self._is_cordoned = is_cordoned

    async def list_pods(self) -> Sequence[Pod]:
        pods = [self._shown(worker) for worker in self._manager.workers.values()]
        pods += [self._waiting(desired) for desired in self._manager.queued()]
        return sorted(pods, key=lambda p: (p.namespace, p.name, str(p.uid)))

    async def watch_pods(self) -> AsyncIterator[PodChange]:
        changes: Latest[PodChange] = Latest()
        seen: set[str] = set()

        def on_change(desired: DesiredPod, facts: PodFacts, status: PodStatus | None) -> None:
            pod = present(desired, facts, status, self._services.now(), orphaned=self._is_orphan(desired))
            if status is None:
                kind = "DELETED"
                seen.discard(str(desired.uid))
            else:
                kind = "MODIFIED" if str(desired.uid) in seen else "ADDED"
                seen.add(str(desired.uid))
            waiting = changes.find(desired.uid)
            if kind == "MODIFIED" and waiting is not None and waiting.type == "ADDED":
                kind = "ADDED"
            changes.put(desired.uid, PodChange(type=kind, object=pod))

        stop = self._services.board.subscribe(on_change)
        try:
            pods = await self.list_pods()
            seen.update(
                str(pod.uid) for pod in pods
            )  # before the first yield: pods may change while the caller is slow
            for pod in pods:
                yield PodChange(type="ADDED", object=pod)
            async for change in changes:
                yield change
        finally:
            stop()

    async def apply_pod(self, pod: Pod, *, dry_run: bool = False) -> ApplyResult:
        namespace = pod.namespace or "default"
        self._refuse_foreign(namespace, pod.name)
        if self._is_cordoned() and self._applied.find(namespace, pod.name) is None:
            raise Conflict(
                f"pod {namespace}/{pod.name} is new, and the node is cordoned; use 'kubeletx uncordon' first"
            )
        action, made = await self._applied.apply(pod, dry_run=dry_run)
        return self._applied_result(action.value, made, dry_run)

    async def replace_pod(self, pod: Pod, force: bool, *, dry_run: bool = False) -> ApplyResult:
        self._refuse_foreign(pod.namespace or "default", pod.name)
        action, made = await self._applied.replace(pod, force=force, dry_run=dry_run)
        return self._applied_result(action.value, made, dry_run)

    def _applied_result(self, action: str, made: Pod, dry_run: bool) -> ApplyResult:
        if dry_run:
            return ApplyResult(action=action, pod=made)
        return ApplyResult(action=action, pod=self._found(made), warnings=self._applied.answers(made.ref))

    async def pod_history(self, target: PodTarget) -> PodHistory:
        history = self.find_worker(target).history
        return PodHistory(items=history.entries, start=history.start)

    async def delete_pod(self, target: PodTarget, options: DeleteOptions) -> Pod:
        grace, force = options.grace_seconds, options.force
        applied = self._applied.find(target.namespace, target.name)
        if applied is None and await self._applied.forget(target.namespace, target.name):
            return self._end_forgotten(target, grace, force)
        lives = self._lives(target)
        others = [life for life in lives if applied is None or life.uid != applied.uid]
        for life in others:
            if not (life.is_ending or self._manager.is_orphan(life.uid) or (force and grace == 0)):
                raise Conflict(
                    f"pod {target.ref} comes from source {life.source!r} and would be created again; remove it there "
                    f"({life.traits.remedy})"
                )
        if len(others) < len(lives):
            await self._applied.delete(target.namespace, target.name, grace_seconds=grace, force=force)
        for life in others:
            self._manager.remove(life.source, life.uid, grace, force)
        worker = self._manager.workers.get(lives[0].uid)
        return self._shown(worker) if worker is not None else self._waiting(lives[0])

    def _end_forgotten(self, target: PodTarget, grace: int | None, force: bool) -> Pod:
        """Delete a pod of ``kubeletx apply`` after its unreadable file was removed.

        Returns the pod, or, if the agent does not run it, a Pod that has only the namespace and name.
        """
        worker = self._manager.find(target.namespace, target.name)
        if worker is None or worker.desired.source != APPLIED:
            return Pod(metadata=ObjectMeta(namespace=target.namespace, name=target.name))
        self._manager.remove(APPLIED, worker.uid, grace, force)
        return self._shown(worker)

    async def open_logs(self, target: PodTarget, options: LogOptions) -> AsyncIterator[bytes]:
        worker = self.find_worker(target)
        name = self._container(worker.desired.pod, options.container, only=True)
        return await self._logs.open(worker, name, options)

    async def restart(self, target: PodTarget, container: str, timeout_seconds: float) -> Sequence[str]:
        worker = self.find_worker(target)
        if worker.facts.own.has_own_kernel:
            raise Unsupported(f"pod {target.ref} is a machine; use 'kubeletx vm reboot {target.name}'")
        require_seen(self._services, worker)
        if container:
            self._container(worker.desired.pod, container)
        async with self.awake(target):
            asked = worker.restart(container)
            if not asked:
                raise Conflict(
                    f"no container of pod {target.ref} can be restarted that runs and has a restart policy other than "
                    "Never; delete and apply the pod to run it again"
                )
            await self._services.overrides.amend(
                worker, lambda old: replace(old, restarts={**old.restarts, **asked})
            )

            def is_restarted() -> bool:
                newest = [(worker.facts.newest(name), old) for name, old in asked.items()]
                return all(
                    u is not None and u.id != old and u.state is UnitState.RUNNING for u, old in newest
                )

            done = timeout_seconds == 0 or await wait_for_worker(
                self._services, worker, is_restarted, timeout_seconds, what="pod"
            )
        if not done:
            raise TimedOut(
                f"containers {', '.join(asked)} of pod {target.ref} do not run again after {timeout_seconds:g}s; "
                f"the restart goes on, see 'kubeletx describe pod {target.name}'"
            )
        return tuple(asked)

    def awake(self, target: PodTarget) -> AbstractAsyncContextManager[None]:
        return kept_awake(
            self._services,
            self.find_worker(target),
            may_thaw=self._streams_thaw,
            delay_seconds=self._standby_delay_seconds,
        )

    async def exec(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        worker, unit_id = self._running(target, container)
        if request.tty and worker.facts.own.has_own_kernel:
            raise Unsupported(
                f"commands in machine {target.ref} have no terminal; leave -t out, or use 'kubeletx attach -it' "
                "for its console"
            )
        handle, supports = self._capable(worker, SupportsExec, "run commands in its units")
        return await handle.ask("exec", lambda: supports.exec(unit_id, request))

    async def attach(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        worker, unit_id = self._running(target, container)
        handle, supports = self._capable(worker, SupportsAttach, "attach to its units")
        return await handle.ask("attach", lambda: supports.attach(unit_id, request))

    async def port_forward(self, target: PodTarget, port: int) -> Session | StreamUrl:
        worker = self.find_worker(target)
        snapshot = worker.facts.snapshot
        sandbox = snapshot.sandboxes[0] if snapshot is not None and snapshot.sandboxes else None
        if sandbox is None or sandbox.state is not SandboxState.READY:
            require_seen(self._services, worker)
            raise Conflict(f"pod {target.ref} is not running")
        handle, supports = self._capable(worker, SupportsPortForward, "forward ports")
        return await handle.ask("port_forward", lambda: supports.port_forward(sandbox.id, port))

    def find_container(self, target: PodTarget, container: str) -> None:
        """Raise NotFound if the pod or container does not exist, Conflict if it does not run."""
        self._running(target, container)

    async def checkpoint(self, target: PodTarget, container: str, path: Path, timeout_seconds: float) -> None:
        """Write the state of a running container to an archive at `path`; the container continues to run.

        Raises Unsupported if the runtime cannot do this.
        """
        worker, unit_id = self._running(target, container)
        handle, supports = self._capable(worker, SupportsCheckpoint, "write checkpoints")
        await handle.ask(
            "checkpoint",
            lambda: supports.checkpoint(unit_id, str(path), timeout_seconds),
            seconds=timeout_seconds + TELL_SECONDS,
        )

    # --- private ------------------------------------------------------------------------------------

    def _is_orphan(self, desired: DesiredPod) -> bool:
        return (
            self._manager.is_orphan(desired.uid) and desired.source in self._manager.synced_sources
        ) or desired.source == UNKNOWN_SOURCE

    def _shown(self, worker: PodWorker) -> Pod:
        status = self._services.board.statuses.get(worker.uid)
        return present(
            worker.desired,
            worker.facts,
            status,
            self._services.now(),
            orphaned=self._is_orphan(worker.desired),
        )

    def _found(self, pod: Pod) -> Pod:
        worker = self._manager.workers.get(pod.uid)
        return self._shown(worker) if worker is not None else pod

    def _waiting(self, desired: DesiredPod) -> Pod:
        """Return, as shown to users, a pod that waits for the end of an older pod of its name."""
        return present(desired, None, None, self._services.now())

    def _lives(self, target: PodTarget) -> list[DesiredPod]:
        """Return the pods of the target's name, or only the pod with the target's UID if it has one.

        The pod that has a worker comes first, then the pods that wait for its end. Raises NotFound if there are none.
        """
        worker = self._manager.find(target.namespace, target.name)
        candidates = [worker.desired] if worker is not None else []
        candidates += [queued for queued in self._manager.queued() if queued.ref == target.ref]
        lives = [candidate for candidate in candidates if target.uid in ("", candidate.uid)]
        if not lives:
            raise NotFound(f'pods "{target.name}" not found in namespace "{target.namespace}"')
        return lives

    def find_worker(self, target: PodTarget) -> PodWorker:
        """Return the worker of the target's pod.

        Raises NotFound, or Conflict if the pod has no worker yet since it waits for the end of an older pod of its
        name.
        """
        life = self._lives(target)[0]
        worker = self._manager.workers.get(life.uid)
        if worker is None:
            raise Conflict(f"pod {target.ref} ({life.uid}) waits for the end of an older pod of its name")
        return worker

    def _refuse_foreign(self, namespace: str, name: str) -> None:
        worker = self._manager.find(namespace, name)
        if (
            worker is not None
            and worker.desired.source != APPLIED
            and not self._manager.is_orphan(worker.uid)
        ):
            raise Conflict(
                f"pod {namespace}/{name} belongs to source {worker.desired.source!r}; change it there"
            )

    def _handle_of(self, worker: PodWorker) -> RuntimeHandle:
        if worker.facts.runtime is None:
            raise Conflict(f"pod {worker.desired.ref} is not bound to a runtime yet; its events say why")
        require_seen(self._services, worker)
        return self._services.registry.get(worker.facts.runtime)

    def _capable(self, worker: PodWorker, protocol: type[T], what: str) -> tuple[RuntimeHandle, T]:
        """Return the pod's runtime, and the runtime's implementation of `protocol`.

        Raises Unsupported if it has none. `what`: completes the message "runtime NAME cannot ...".
        """
        handle = self._handle_of(worker)
        capability: T | None = handle.capability(protocol)
        if capability is None:
            raise Unsupported(f"runtime {handle.name} cannot {what}")
        return handle, capability

    def _running(self, target: PodTarget, container: str) -> tuple[PodWorker, UnitId]:
        worker = self.find_worker(target)
        name = self._container(worker.desired.pod, container)
        unit = worker.facts.newest(name)
        if unit is None or not unit.state.is_alive:
            require_seen(self._services, worker)
            raise Conflict(f"container {name} of pod {target.ref} is not running")
        return worker, unit.id

    @staticmethod
    def _container(pod: Pod, wanted: str, *, only: bool = False) -> str:
        regular = [c.name for c in regular_units(pod)]
        names = regular + [c.name for c in (*init_units(pod), *ephemeral_units(pod))]
        if wanted:
            if wanted not in names:
                raise NotFound(f"container {wanted} is not in pod {pod.name}; containers: {', '.join(names)}")
            return wanted
        if not regular:
            raise NotFound(f"pod {pod.name} has no containers")
        default = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
        if default in names:
            return default
        if only and len(names) > 1:
            raise InvalidConfig(
                field="container",
                problem=f"pod {pod.name} has several containers",
                fix=f"choose one with -c: {', '.join(names)}",
            )
        return regular[0]
