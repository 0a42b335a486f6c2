"""`ManifestOwnership`: decides which manifest owns which pod, and reports changes to the sink.

A manifest is identified by its path or URL (`origin`) and owns its pods. If several manifests define a pod of the same
name, the first origin in sorted order owns the pod and the others get an error. When the owner is removed, the next one
owns the name and its pod is run. A manifest that becomes invalid keeps its pods, which then show the error. A change
concerns only the pods of the changed manifest, so its cost does not grow with the number of manifests. The same rules
hold for the config maps, secrets and claims of manifests (`LocalObjects`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import structlog

from kubeletx.api import InvalidPod, PodUid
from kubeletx.api.text import printable
from kubeletx.kube.manifests.hashes import pod_hash
from kubeletx.kube.manifests.objects import LocalObject, key_of
from kubeletx.kube.types.core import Pod
from kubeletx.pods.model.sources import PodSink, Refused

from .local_objects import LocalObjects
from .manifest import Manifest

log = structlog.get_logger(__name__)


class ManifestOwnership:
    """Table of the pods of one source by manifest; reports every change to the sink (the pod manager) at once.

    `origin`: path or URL of a manifest.
    """

    def __init__(self, sink: PodSink, source: str, objects: LocalObjects | None = None) -> None:
        """`objects`: gets the config maps, secrets and claims of the manifests; None: they have none."""
        self._objects = objects
        if objects is not None:
            objects.on_concerned = self._report_all
        self._sink = sink
        self._source = source
        self._pods: dict[str, tuple[Pod, ...]] = {}
        self._errors: dict[str, InvalidPod] = {}
        self._reported: dict[str, tuple[str, tuple[PodUid, ...]]] = {}
        self._origins: dict[str, list[str]] = {}
        self._delivered: dict[str, Pod] = {}
        self._refused: dict[str, str] = {}
        """Messages with which the sink refused pods, by namespace/name."""

    def __contains__(self, origin: str) -> bool:
        """Return True if the manifest at path or URL `origin` is known, valid or invalid."""
        return origin in self._pods or origin in self._errors

    def origins(self) -> set[str]:
        """Return the paths or URLs of all known manifests, valid or invalid."""
        return self._pods.keys() | self._errors.keys()

    def owner(self, ref: str) -> str | None:
        """Return the path or URL of the manifest that owns the pod `ref` (namespace/name); None if none defines it."""
        origins = self._origins.get(ref)
        return origins[0] if origins else None

    def owners(self, manifest: Manifest) -> Iterator[str | None]:
        """Yield the owner of each pod and object of `manifest`, as `owner` does."""
        for pod in manifest.pods:
            yield self.owner(pod.ref)
        for item in manifest.objects:
            yield self._objects.owner(key_of(item)) if self._objects is not None else None

    def has_pods(self, origin: str) -> bool:
        """Return True if the manifest contained pods when it was last valid."""
        return bool(self._pods.get(origin))

    def set_pods(self, origin: str, pods: tuple[Pod, ...], objects: tuple[LocalObject, ...] = ()) -> None:
        """Replace the pods and objects of a manifest, and withdraw its error; no two have the same name."""
        self._errors.pop(origin, None)
        self._replace(origin, pods, objects)

    def set_earlier(self, origin: str, objects: tuple[LocalObject, ...]) -> None:
        """Set the objects that a manifest had before the agent's restart: immutable ones keep their content."""
        if self._objects is not None:
            self._objects.put(origin, objects)

    def keeps_earlier(self, origin: str) -> bool:
        """Return True if an immutable object keeps a content that the manifest does not have any more."""
        return self._objects is not None and self._objects.is_frozen(origin)

    def set_error(self, origin: str, error: InvalidPod) -> None:
        """Set the error of an invalid manifest; its earlier pods keep running."""
        self._errors[origin] = error
        self._report(origin)

    def drop(self, origin: str) -> None:
        """Forget the manifest and its error, and remove its pods and objects.

        If another manifest defines a pod of the same name, that pod is run instead.
        """
        self._errors.pop(origin, None)
        self._replace(origin, (), ())
        self._pods.pop(origin, None)

    def _replace(self, origin: str, pods: tuple[Pod, ...], objects: tuple[LocalObject, ...]) -> None:
        refs = {pod.ref for pod in pods}
        affected = dict.fromkeys(pod.ref for pod in self._pods.get(origin, ()))
        for ref in affected:
            if ref not in refs:
                self._origins[ref].remove(origin)
        for ref in refs - affected.keys():
            bisect.insort(self._origins.setdefault(ref, []), origin)
        self._pods[origin] = pods
        affected.update(dict.fromkeys(pod.ref for pod in pods))
        concerned = {origin}
        if self._objects is not None:  # before the pods, which find them when they start
            self._objects.put(origin, objects)
        for ref in affected:
            concerned.update(self._origins[ref])
            self._deliver(ref)
        for manifest in concerned:
            self._report(manifest)

    def _deliver(self, ref: str) -> None:
        origins, before = self._origins[ref], self._delivered.get(ref)
        wanted = self._find(origins[0], ref) if origins else None
        if before is not None and (wanted is None or wanted.uid != before.uid):
            del self._delivered[ref]
            self._refused.pop(ref, None)
            self._sink.remove(self._source, before.uid)
        if wanted is None:
            del self._origins[ref]
            return
        if before is None or wanted.uid != before.uid or pod_hash(wanted) != pod_hash(before):
            self._delivered[ref] = wanted
            answer = self._sink.update(self._source, wanted)
            if isinstance(answer, Refused):
                self._refused[ref] = answer.message
            else:
                self._refused.pop(ref, None)

    def _find(self, origin: str, ref: str) -> Pod:
        return next(pod for pod in self._pods[origin] if pod.ref == ref)

    def _report_all(self, origins: set[str]) -> None:
        for origin in origins & self.origins():
            self._report(origin)

    def _report(self, origin: str) -> None:
        """Report the manifest's error to the sink if it is new; if the error has ended, report that."""
        pods = self._pods.get(origin, ())
        uids: tuple[PodUid, ...] = ()
        error = self._errors.get(origin)
        if error is not None:
            uids = tuple(pod.uid for pod in pods if self._origins[pod.ref][0] == origin)
        else:
            error = next(filter(None, (self._refusal(origin, pod) for pod in pods)), None)
            if error is None and self._objects is not None:
                error = self._objects.problem(origin)
        reported = self._reported.get(origin)
        shown = printable(origin)
        if error is None:
            if reported is not None:
                del self._reported[origin]
                log.info("Manifest is valid again" if pods else "Invalid manifest is gone", manifest=shown)
                self._sink.valid(self._source, shown)
            return
        if reported == (str(error), uids):
            return
        self._reported[origin] = (str(error), uids)
        for uid in uids or (None,):
            self._sink.invalid(self._source, shown, error, uid)

    def _refusal(self, origin: str, pod: Pod) -> InvalidPod | None:
        first = self._origins[pod.ref][0]
        if first == origin:
            return self._refusal_of_sink(origin, pod)
        return InvalidPod(
            obj=origin,
            field="metadata.name",
            problem=f"pod {pod.ref} is already defined by {first}",
            fix="rename one of the two pods or remove one of the files",
        )

    def _refusal_of_sink(self, origin: str, pod: Pod) -> InvalidPod | None:
        problem = self._refused.get(pod.ref)
        if problem is None:
            return None
        fix = "give the pod another UID or remove the other one"
        return InvalidPod(obj=origin, field="metadata.uid", problem=problem, fix=fix)
