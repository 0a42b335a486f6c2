"""`ManifestReader`: converts the bytes of a manifest to static pods that are ready to run, or to one error.

The steps: parse, set defaults, validate, refuse references to API objects, set UID and name (see `identity`). A
manifest with one invalid pod is refused as a whole: otherwise that pod would look as if it had been removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import NamedTuple

import msgspec

from kubeletx.api import InvalidPod
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.load import describe, load_manifest
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.types.core import Pod
from kubeletx.kube.validation import validate_pod

from .identity import give_identity, static_name, static_uid


class InvalidManifest(InvalidPod):
    """Raised for a manifest with one or more problems.

    The message is that of the first problem, with the number of further ones. `problems`: all of them.
    """

    def __init__(self, problems: tuple[InvalidPod, ...]) -> None:
        first, more = problems[0], len(problems) - 1
        super().__init__(obj=first.obj, field=first.field, problem=first.problem, fix=first.fix)
        self.problems = problems
        if more:
            self.message = f"{self.message} (and {more} more problem{'s' if more > 1 else ''})"


class Manifest(NamedTuple):
    """The pods of a manifest, ready to run. `unknown`: pods that have unknown fields, with these fields' paths."""

    pods: tuple[Pod, ...]
    unknown: tuple[tuple[Pod, tuple[str, ...]], ...] = ()


OnUnknown = Callable[[Pod, tuple[str, ...]], None]
"""Called with a pod and the paths of the unknown fields in its manifest, which have no effect."""


def ignore_unknown(pod: Pod, fields: tuple[str, ...]) -> None:
    """Do nothing; an `OnUnknown` for callers that ignore unknown fields."""


class ManifestReader(msgspec.Struct, frozen=True, kw_only=True):
    """Reads manifests of static pods for one node.

    `workload_types`: the workload types that a pod may have on this node, such as container; None: any.
    """

    node_name: str
    workload_types: Collection[str] | None = None

    def read(self, data: bytes, *, origin: str, source: str, seen_at: datetime) -> Manifest:
        """Convert `data` to pods, in the order of the manifest. Raises InvalidPod if one of them is invalid.

        The result has no pods only if the manifest is an empty list. `origin`: path or URL of the manifest. `source`:
        name of the pod source. `seen_at`: present time, used as the creation time of new pods; a pod that the pod
        manager knows already keeps its creation time.
        """
        written = load_manifest(data, origin)
        pods = tuple(set_defaults(one.pod) for one in written)
        problems = [problem for pod in pods for problem in self._problems(pod, origin)]
        problems += _duplicates(pods, origin)
        if problems:
            raise InvalidManifest(tuple(problems))
        made = tuple(
            give_identity(
                pod,
                static_uid(original.pod, node_name=self.node_name, origin=origin),
                source=source,
                node_name=self.node_name,
                seen_at=seen_at,
            )
            for original, pod in zip(written, pods, strict=True)
        )
        unknown = tuple((pod, one.unknown) for one, pod in zip(written, made, strict=True) if one.unknown)
        return Manifest(made, unknown)

    def _problems(self, pod: Pod, origin: str) -> tuple[InvalidPod, ...]:
        problems = validate_pod(pod, origin, self.workload_types) + refused_references(pod, origin)
        name = static_name(pod.metadata.name, self.node_name)
        if problems or len(name) <= 253:
            return problems
        problem = f"{pod.metadata.name!r} is too long: {name!r} has {len(name)} characters"
        return (InvalidPod(obj=origin, field="metadata.name", problem=problem, fix="use a shorter name"),)


def _duplicates(pods: tuple[Pod, ...], origin: str) -> list[InvalidPod]:
    seen: set[str] = set()
    problems = []
    for pod in pods:
        if pod.ref in seen:
            obj = describe(origin, pod.metadata.name)
            problem = f"{pod.ref!r} is in this manifest twice"
            problems.append(
                InvalidPod(obj=obj, field="metadata.name", problem=problem, fix="rename one of the pods")
            )
        seen.add(pod.ref)
    return problems
