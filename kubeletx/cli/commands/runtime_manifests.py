"""Output of ``kubeletx runtime manifests``: a RuntimeClass for each runtime.

If a runtime has several handlers, there is one more RuntimeClass for each handler. A class and its ``handler`` are both
called NAME or NAME--HANDLER, so a pod's ``runtimeClassName`` names the runtime. The class selects nodes where the
runtime is ready, has the overhead that the plugin declares, and tolerates the taints of other workload types
(`node.status`). Source: node/v1 RuntimeClass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kubeletx.api import CONTAINER, VM, names
from kubeletx.kube.types.core import Toleration
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import Overhead, RuntimeClass, Scheduling
from kubeletx.runtimes.binding.selection import HANDLER_MARK
from kubeletx.server.views import RuntimeDetail

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MEBIBYTE: Final = 1024 * 1024


class Classes(NamedTuple):
    """RuntimeClasses to print. `notes`: warnings about classes that are missing or incomplete."""

    classes: tuple[RuntimeClass, ...]
    notes: tuple[str, ...]


def runtime_classes(details: Sequence[RuntimeDetail]) -> Classes:
    """Make the RuntimeClasses of the runtimes, in the order of `details`."""
    types = sorted({CONTAINER, VM, *(item.runtime.workload_type for item in details)})
    classes, notes = [], []
    for detail in details:
        name = detail.runtime.name
        if not detail.traits:
            notes.append(f"{name} never answered, so its overhead and handlers are not known")
        for handler in _handlers(detail):
            if _LABEL.fullmatch(handler):
                classes.append(_class(detail, handler, types))
            else:
                notes.append(
                    f"{handler!r} cannot be the name of a class: it is no DNS label of 63 characters"
                )
    return Classes(tuple(classes), tuple(notes))


def _handlers(detail: RuntimeDetail) -> Iterator[str]:
    yield detail.runtime.name
    if len(detail.handlers) > 1:
        yield from (f"{detail.runtime.name}{HANDLER_MARK}{handler}" for handler in detail.handlers)


def _class(detail: RuntimeDetail, handler: str, types: Sequence[str]) -> RuntimeClass:
    runtime = detail.runtime
    others = [workload_type for workload_type in types if workload_type != runtime.workload_type]
    return RuntimeClass(
        metadata=ObjectMeta(name=handler),
        handler=handler,
        overhead=_overhead(detail.traits),
        scheduling=Scheduling(
            node_selector={names.RUNTIME_LABEL_PREFIX + runtime.name: "ready"},
            tolerations=tuple(
                Toleration(key=names.WORKLOAD_TAINT_PREFIX + workload_type, operator="Exists")
                for workload_type in others
            ),
        ),
    )


def _overhead(traits: dict[str, Any]) -> Overhead | None:
    cpu, memory = int(traits.get("cpu_overhead_millicores", 0)), int(traits.get("memory_overhead_bytes", 0))
    amounts = {"cpu": f"{cpu}m"} if cpu else {}
    if memory:
        amounts["memory"] = str(memory) if memory % _MEBIBYTE else f"{memory // _MEBIBYTE}Mi"
    return Overhead(pod_fixed=amounts) if amounts else None
