"""Validation of pods: finds everything that an API server would refuse in a pod.

It is for static pods, which the node runs without an API server. `validate_pod` returns all problems at once, each with
the field, what was found and what to do. Defaults must be set before (`kubeletx.kube.manifests.defaults`). Each file of
this package has the rules for one part of a pod. `problems` collects the problems; `words` checks names and other short
texts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kubeletx.api import InvalidPod, names

from ..manifests.describe import describe
from ..types.core import Nic, Pod
from . import words
from .environment import check_pod_size
from .machine import (
    VIRTLET_RUNTIME,
    check_machine_annotations,
    check_machine_settings,
    check_nic_list,
    check_standby,
)
from .metadata import check_metadata
from .problems import Problems, alternatives, show
from .spec import check_spec


def validate_pod(
    pod: Pod, origin: str, workload_types: Collection[str] | None = None
) -> tuple[InvalidPod, ...]:
    """Return all problems of a pod whose defaults are set, in the order of its fields; empty if the pod is valid.

    `origin`: file or URL of the pod, named in each problem. `workload_types`: workload types of this node
    (container, vm, and types that plugins declare), which the annotation ``kubeletx.io/workload-type`` may
    name; None: that annotation is not checked.
    """
    problems = Problems(describe(origin, pod.metadata.name))
    check_metadata(pod.metadata, problems)
    _check_annotations(pod.metadata.annotations, workload_types, problems)
    check_standby(pod, problems)
    check_machine_annotations(pod, problems)
    check_machine_settings(pod, problems)
    check_spec(pod.spec, problems)
    return tuple(problems.found)


def validate_own(pod: Pod, origin: str) -> tuple[InvalidPod, ...]:
    """Return the problems that no API server checks; empty if there are none.

    These are problems of the pod's ``kubeletx.io/`` annotations, and the size of its variables and arguments. The value
    of ``kubeletx.io/workload-type`` is not checked here. `origin`: name of the pod in each problem.
    """
    problems = Problems(describe(origin, pod.metadata.name))
    check_pod_size(pod.spec, problems)
    notes = pod.metadata.annotations
    if VIRTLET_RUNTIME not in notes and not any(key.startswith(names.OWN_PREFIX) for key in notes):
        return tuple(problems.found)
    _check_annotations(pod.metadata.annotations, None, problems)
    check_standby(pod, problems)
    check_machine_annotations(pod, problems)
    check_machine_settings(pod, problems)
    return tuple(problems.found)


def check_interfaces(obj: str, nics: Sequence[Nic]) -> None:
    """Raise InvalidPod for the first problem of a machine's network interfaces, if any.

    `obj`: name of the machine, for the error.
    """
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


__all__ = ["check_interfaces", "validate_own", "validate_pod"]
