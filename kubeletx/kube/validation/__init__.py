"""Everything that an API server would refuse in a pod, for static pods, which no API server sees.

`validate_pod` returns all problems at once, each with the field, what was found and what to do. It expects defaults to
be set (`kubeletx.kube.manifests.defaults`). Each file of this package holds the rules of one part of a pod; `problems`
collects, `words` has the syntax of names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kubeletx.api import InvalidPod, names

from ..manifests.load import describe
from ..types.core import Nic, Pod
from . import words
from .machine import VIRTLET_RUNTIME, check_machine_annotations, check_machine_settings, check_nic_list
from .metadata import check_metadata
from .problems import Problems, alternatives, show
from .spec import check_spec


def validate_pod(
    pod: Pod, origin: str, workload_types: Collection[str] | None = None
) -> tuple[InvalidPod, ...]:
    """Return all problems of a pod whose defaults are set, in the order of its fields; empty if the pod is valid.

    `origin`: file or URL of the pod, named in each problem. `workload_types`: types that a pod on this node
    may have (container, vm, and those that plugins declare); None leaves the workload type's annotation
    unchecked.
    """
    problems = Problems(describe(origin, pod.metadata.name))
    check_metadata(pod.metadata, problems)
    _check_annotations(pod.metadata.annotations, workload_types, problems)
    check_machine_annotations(pod, problems)
    check_machine_settings(pod, problems)
    check_spec(pod.spec, problems)
    return tuple(problems.found)


def validate_annotations(pod: Pod, origin: str) -> tuple[InvalidPod, ...]:
    """Return the problems of the pod's kubeletx annotations, which an API server does not check."""
    notes = pod.metadata.annotations
    if VIRTLET_RUNTIME not in notes and not any(key.startswith(names.OWN_PREFIX) for key in notes):
        return ()
    problems = Problems(describe(origin, pod.metadata.name))
    _check_annotations(pod.metadata.annotations, None, problems)
    check_machine_annotations(pod, problems)
    check_machine_settings(pod, problems)
    return tuple(problems.found)


def check_interfaces(obj: str, nics: Sequence[Nic]) -> None:
    """Raise the first problem of a machine's network interfaces. `obj`: the machine, named in the error."""
    problems = Problems(obj)
    check_nic_list("nics", nics, problems)
    if problems.found:
        raise problems.found[0]


def _check_annotations(
    annotations: dict[str, str], workload_types: Collection[str] | None, problems: Problems
) -> None:
    runtime = annotations.get(names.RUNTIME_SERVICE_NAME)
    problems.word(f"metadata.annotations[{names.RUNTIME_SERVICE_NAME}]", runtime, words.runtime_name)
    workload_type = annotations.get(names.WORKLOAD_TYPE)
    if workload_type is not None and workload_types is not None and workload_type not in workload_types:
        problems.add(
            f"metadata.annotations[{names.WORKLOAD_TYPE}]",
            f"{show(workload_type)} is not a workload type of this node",
            f"use {alternatives(sorted(workload_types))}",
        )


__all__ = ["check_interfaces", "validate_annotations", "validate_pod"]
