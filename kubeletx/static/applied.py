"""Pods that an operator applied on this node: ``kubeletx apply``, ``replace`` and ``delete``.

Each applied pod is stored in a file (see `applied_files`), so applied pods survive the loss of the database. A pod
gets a UID when it is created. A change that the Kubernetes API would allow keeps the UID. Any other change needs
``replace --force``, which ends the pod and starts another. While the agent runs, only this source writes the
directory. A file that is invalid or unreadable is reported at the agent's start. Its pod may be running, so
the source does not report that it has delivered all its pods (is synced) before that file is read, written again or
removed.
"""

from __future__ import annotations

import asyncio
import enum
import uuid
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from kubeletx.api import Clock, Conflict, InvalidPod, NotFound, PodUid, Unavailable, names
from kubeletx.api.text import printable
from kubeletx.kube.manifests.defaults import DEFAULT_NAMESPACE, set_defaults
from kubeletx.kube.manifests.describe import describe
from kubeletx.kube.manifests.hashes import pod_hash
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.kube.validation import validate_pod
from kubeletx.pods.model.sources import APPLIED, PodSink, Refused, WaitsFor

from . import applied_files
from .files import read_manifest
from .manifest import InvalidManifest
from .update_rules import FIRST_NIC, changed_runtime, forbidden_changes

P = ParamSpec("P")
T = TypeVar("T")

RETRY_SECONDS: Final = 20.0
"""Interval between tries to read a file after a disk error."""

_OURS: Final = frozenset(
    {names.CONFIG_SOURCE, names.CONFIG_SEEN, names.CONFIG_HASH, names.CONFIG_MIRROR, names.BOUND_RUNTIME}
)
"""Annotations that the agent writes. In an applied manifest they are copies from an earlier pod and are removed."""


_IDENTITY: Final = ("metadata.name", "metadata.namespace", "metadata.uid")
"""Fields without which a stored pod cannot run, even if it did so with an earlier version."""


class ApplyOutcome(enum.Enum):
    """Outcome of applying or replacing a pod, as it is shown to the operator."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"


class AppliedSource:
    """Pod source of the pods that an operator applied: stores them in files and delivers them to the pod manager.

    Call `start` once. The other methods may be called concurrently; their changes are made one at a time.
    """

    def __init__(
        self,
        *,
        directory: Path,
        sink: PodSink,
        node_name: str,
        clock: Clock,
        workload_types: Collection[str] | None = None,
        is_bound: Callable[[PodUid], bool] = lambda _: True,
    ) -> None:
        """`directory`: ``<root-dir>/applied``, made if missing. `sink`: gets the pods (the pod manager).

        `is_bound`: returns True if the pod is assigned to a runtime. `workload_types`: the types that a pod may
        have; None: any.
        """
        self._directory = directory
        self._sink = sink
        self._node_name = node_name
        self._clock = clock
        self._workload_types = workload_types
        self._is_bound = is_bound
        self._pods: dict[str, Pod] = {}
        self._answers: dict[str, str] = {}
        """Reasons why pods did not start immediately, by namespace/name."""
        self._lock = asyncio.Lock()
        self._is_started = False
        self._refused: set[str] = set()
        self._unknown: dict[str, bool] = {}
        """Files that are unreadable or invalid → True if reading the file again may help (a disk error)."""
        self._is_synced = False
        self._verbs: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Read the files of the pods applied earlier and deliver their pods to the sink.

        Reports to the sink that the source is synced as soon as no file is unreadable or invalid. Returns when no file
        has a disk error any more.
        """
        async with self._lock:
            for path in await asyncio.to_thread(applied_files.list_files, self._directory):
                self._read(path)
            self._is_started = True
            self._report_synced()
        while any(self._unknown.values()):
            await self._clock.sleep(RETRY_SECONDS)
            async with self._lock:
                for name in [name for name, may_help in self._unknown.items() if may_help]:
                    self._read(Path(name))

    async def close(self) -> None:
        """Wait until the running calls of `apply`, `replace`, `delete` and `forget` have ended."""
        await asyncio.gather(*self._verbs, return_exceptions=True)

    def find(self, namespace: str, name: str) -> Pod | None:
        """Return the applied pod of this name, completed with the API's defaults; None if there is none."""
        return self._pods.get(f"{namespace}/{name}")

    async def apply(
        self, pod: Pod, origin: str = "apply", *, dry_run: bool = False
    ) -> tuple[ApplyOutcome, Pod]:
        """Create this pod, or change the mutable fields of the existing pod of its name.

        Returns the outcome, and the pod completed with the API's defaults, when the pod is safely on disk. The change
        is completed even if the caller is cancelled. `origin`: where the pod comes from, for messages. `dry_run`:
        check only, change nothing. Raises InvalidPod, Conflict (naming the fields that may not change) and Unavailable
        (a disk error, or the files are not read yet).
        """
        return await self._whole(self._apply(_named(pod), origin, dry_run))

    async def replace(
        self, pod: Pod, *, force: bool = False, origin: str = "replace", dry_run: bool = False
    ) -> tuple[ApplyOutcome, Pod]:
        """Change an existing pod like `apply`. Raises NotFound if there is none.

        `force`: end the pod and start another one of the same name, so that every field may change.
        """
        return await self._whole(self._replace(_named(pod), force, origin, dry_run))

    async def delete(
        self, namespace: str, name: str, *, grace_seconds: int | None = None, force: bool = False
    ) -> Pod:
        """Remove the pod's file and begin to delete the pod; returns the pod as it was last applied.

        `grace_seconds`: grace period; None: the pod's own. `force`: do not wait for a runtime that does not
        answer. Raises NotFound if there is no such pod.
        """
        return await self._whole(self._delete(namespace, name, grace_seconds, force))

    async def forget(self, namespace: str, name: str) -> bool:
        """Remove the file of this pod if the file is unreadable or invalid, and return True.

        Returns False, without a change, if the file is valid or there is none.
        """
        return await self._whole(self._forget(namespace, name))

    def answers(self, ref: str) -> tuple[str, ...]:
        """Return the reason why the pod did not start when it was applied, as one sentence; empty if it did.

        `ref`: the pod's namespace/name.
        """
        answer = self._answers.get(ref)
        return (f"pod {ref} {answer}",) if answer is not None else ()

    # --- steps --------------------------------------------------------------------------------------

    async def _whole(self, verb: Coroutine[Any, Any, T]) -> T:
        """Await the coroutine `verb`, a change of applied pods, while no other change is in progress.

        The change is completed even if the caller is cancelled, so that the files always agree with the pods of the
        sink. Raises Unavailable before `start` has read the files.
        """

        async def alone() -> T:
            async with self._lock:
                if not self._is_started:
                    verb.close()
                    raise Unavailable(f"applied pods in {self._directory} are not read yet; try again")
                return await verb

        task = asyncio.create_task(alone(), name="applied-pods")
        self._verbs.add(task)
        task.add_done_callback(self._verbs.discard)
        return await asyncio.shield(task)

    async def _apply(self, pod: Pod, origin: str, dry_run: bool) -> tuple[ApplyOutcome, Pod]:
        current = self._pods.get(pod.ref)
        written, completed = self._prepare(pod, origin, current)
        if current is not None:
            if pod_hash(completed) == pod_hash(current):
                return ApplyOutcome.UNCHANGED, current
            changed = forbidden_changes(current, completed)
            if self._is_bound(current.uid):
                changed += changed_runtime(current, completed)
            if changed:
                raise Conflict(_explain(pod.ref, changed))
        if not dry_run:
            await self._save(written)
            self._deliver(completed)
        return ApplyOutcome.CREATED if current is None else ApplyOutcome.CONFIGURED, completed

    async def _replace(self, pod: Pod, force: bool, origin: str, dry_run: bool) -> tuple[ApplyOutcome, Pod]:
        current = self._existing(pod.ref)
        if not force:
            action, made = await self._apply(pod, origin, dry_run)
            return (ApplyOutcome.REPLACED if action is ApplyOutcome.CONFIGURED else action), made
        written, completed = self._prepare(pod, origin, None)
        if dry_run:
            return ApplyOutcome.REPLACED, completed
        await self._save(written)
        self._sink.remove(APPLIED, current.uid)
        self._deliver(completed)
        return ApplyOutcome.REPLACED, completed

    async def _delete(self, namespace: str, name: str, grace_seconds: int | None, force: bool) -> Pod:
        pod = self._existing(f"{namespace}/{name}")
        path = applied_files.path_of(self._directory, namespace, name)
        await change(f"remove {path}", applied_files.remove, path)
        del self._pods[pod.ref]
        self._sink.remove(APPLIED, pod.uid, grace_seconds, force)
        return pod

    async def _forget(self, namespace: str, name: str) -> bool:
        path = applied_files.path_of(self._directory, namespace, name)
        if str(path) not in self._unknown:
            return False
        await change(f"remove {path}", applied_files.remove, path)
        self._settle(path)
        return True

    def _existing(self, ref: str) -> Pod:
        pod = self._pods.get(ref)
        if pod is None:
            raise NotFound(
                f"pod {ref} was not applied on this node; 'kubeletx get pods' shows the source of each pod"
            )
        return pod

    def _read(self, path: Path) -> None:
        """Read one file and deliver its pod, or report the file's error to the sink."""
        try:
            self._load(path)
        except FileNotFoundError:
            self._settle(path)
        except (InvalidPod, OSError) as err:
            self._unknown[str(path)] = isinstance(err, OSError)
            self._refuse(str(path), err)

    def _load(self, path: Path) -> None:
        """Read one file and deliver its pod. Raises InvalidPod or OSError.

        A stored pod that breaks validation rules of this version is delivered too, so that it continues to run; the
        error is reported.
        """
        origin = str(path)
        for written in load_pods(read_manifest(origin).data, origin):
            pod = self._complete(set_defaults(written))
            problems = self._problems(pod, origin, exists=True)
            if not pod.uid or any(problem.field in _IDENTITY for problem in problems):
                missing = InvalidPod(
                    obj=origin, field="metadata.uid", problem="is missing", fix="remove the file"
                )
                raise InvalidManifest(problems or (missing,))
            self._deliver(pod)
            self._settle(path)
            if problems:
                self._refuse(origin, InvalidManifest(problems), pod.uid)

    def _refuse(self, origin: str, err: InvalidPod | OSError, uid: PodUid | None = None) -> None:
        if isinstance(err, OSError):
            problem = f"cannot be read: {err.strerror}"
            err = InvalidPod(obj=origin, field="", problem=problem, fix="make it readable for the agent")
        self._refused.add(origin)
        self._sink.invalid(APPLIED, printable(origin), err, uid)

    def _prepare(self, pod: Pod, origin: str, current: Pod | None) -> tuple[Pod, Pod]:
        """Return (pod to write to the file, pod to run). Raises InvalidManifest.

        `current`: existing pod whose UID and creation time both get; None: they get new ones. `origin`: for messages.
        """
        metadata = msgspec.structs.replace(
            pod.metadata,
            uid=current.uid if current else str(uuid.uuid4()),
            creation_timestamp=current.metadata.creation_timestamp if current else self._clock.now(),
            generate_name="",
            resource_version="",
            deletion_timestamp=None,
            deletion_grace_period_seconds=None,
            annotations={key: text for key, text in pod.metadata.annotations.items() if key not in _OURS},
        )
        written = msgspec.structs.replace(pod, metadata=metadata, status=PodStatus())
        if current is not None and not pod.spec.ephemeral_containers:  # a manifest does not have them
            spec = msgspec.structs.replace(pod.spec, ephemeral_containers=current.spec.ephemeral_containers)
            written = msgspec.structs.replace(written, spec=spec)
        completed = set_defaults(written)
        if problems := self._problems(completed, origin, exists=current is not None):
            raise InvalidManifest(problems)
        return written, self._complete(completed)

    def _problems(self, pod: Pod, origin: str, *, exists: bool) -> tuple[InvalidPod, ...]:
        problems = validate_pod(pod, origin, self._workload_types) + refused_references(
            pod, origin, exists=exists
        )
        if pod.spec.node_name in (None, "", self._node_name):
            return problems
        other = InvalidPod(
            obj=describe(origin, pod.name),
            field="spec.nodeName",
            problem=f"{pod.spec.node_name!r} is not this node",
            fix=f"remove it or write {self._node_name}",
        )
        return (*problems, other)

    def _complete(self, pod: Pod) -> Pod:
        """Return the pod with the fields that the agent sets: its annotations, the node name and the status."""
        annotations = {
            **pod.metadata.annotations,
            names.CONFIG_SOURCE: APPLIED,
            names.CONFIG_SEEN: self._clock.now().isoformat(),
        }
        return msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(pod.metadata, annotations=annotations),
            spec=msgspec.structs.replace(pod.spec, node_name=self._node_name),
            status=PodStatus(phase="Pending"),
        )

    def _deliver(self, pod: Pod) -> None:
        self._pods[pod.ref] = pod
        match self._sink.update(APPLIED, pod):
            case WaitsFor(message=message) | Refused(message=message):
                self._answers[pod.ref] = message
            case _:
                self._answers.pop(pod.ref, None)

    async def _save(self, written: Pod) -> None:
        path = applied_files.path_of(self._directory, written.namespace, written.name)
        await change(f"write {path}", applied_files.save, path, written)
        self._settle(path)

    def _settle(self, path: Path) -> None:
        """Withdraw the error that was reported for this file, and report the source as synced if no error is left."""
        if str(path) in self._refused:
            self._refused.discard(str(path))
            self._sink.valid(APPLIED, printable(str(path)))
        self._unknown.pop(str(path), None)
        if self._is_started:
            self._report_synced()

    def _report_synced(self) -> None:
        if not self._is_synced and not self._unknown:
            self._is_synced = True
            self._sink.synced(APPLIED)


async def change(what: str, function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a function that changes a file on a thread. Raises Unavailable for a disk error. `what`: for its message."""
    try:
        await asyncio.to_thread(function, *args, **kwargs)
    except OSError as err:
        fix = "free space there or make it writable, then try again"
        raise Unavailable(f"cannot {what}: {err.strerror}; {fix}") from err


def _named(pod: Pod) -> Pod:
    if pod.metadata.namespace:
        return pod
    metadata = msgspec.structs.replace(pod.metadata, namespace=DEFAULT_NAMESPACE)
    return msgspec.structs.replace(pod, metadata=metadata)


def _explain(ref: str, changed: list[str]) -> str:
    shown = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
    return (
        f"pod {ref}: {shown} may not change while the pod lives (images, tolerations, a shorter "
        f"activeDeadlineSeconds, labels and annotations may{_nic_rule(changed)}); use replace --force"
    )


def _nic_rule(changed: list[str]) -> str:
    if not any(path.startswith("spec.nics") for path in changed):
        return ""
    return f", and interfaces other than {FIRST_NIC} may come and go, each as it was added"
