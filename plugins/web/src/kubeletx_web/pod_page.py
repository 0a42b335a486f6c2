"""The page of one pod as fragments. Pure, but for `PodPage.prepare`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from kubeletx.api import KubeletxError, names
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.kube.masking import HIDDEN, masked_pod
from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.text.yaml import dump_yaml
from kubeletx.kube.types.core import AnyUnit, Container, ContainerState, ContainerStatus, Pod, Probe
from kubeletx.kube.types.event import Event

from .live import Fragments
from .sections import sessions_of
from .start import start_rows
from .state import NodeState, Usage
from .svg import sparkline
from .templates import render
from .values import History
from .why import exit_text, why
from .words import limits, runtime_of, tone

EVENTS: Final = 100
MARKS: Final[Mapping[str, str]] = {
    names.Event.STANDBY: "frozen",
    names.Event.HIBERNATED: "hibernated",
    names.Event.ACTIVATED: "woken",
}
"""Words in the plots for the events of freezes and wakes."""


class Unit(msgspec.Struct, frozen=True):
    """One container or machine of the pod. `status`: None before it has one. `limits`, `probes`: texts."""

    spec: AnyUnit
    role: str
    status: ContainerStatus | None
    state: str
    tone: str
    last: str
    limits: str
    probes: Sequence[str]


class PodPage:
    """Renders the page of one pod."""

    def __init__(
        self,
        state: NodeState,
        namespace: str,
        name: str,
        now: Callable[[], datetime],
        read_history: Callable[[], Awaitable[History]],
    ) -> None:
        """`read_history`: asks the agent; it may raise KubeletxError."""
        self._state = state
        self._namespace = namespace
        self._name = name
        self._now = now
        self._read_history = read_history
        self._history = History()
        self._read_for: Pod | None = None
        self._last: Mapping[str, str] = {}

    @property
    def pod(self) -> Pod | None:
        """The newest pod of this name; None if there is none any more."""
        return find_pod(self._state, self._namespace, self._name)

    async def prepare(self) -> None:
        """Read the pod's history again if the pod has changed."""
        pod = self.pod
        if pod is None or pod is self._read_for:
            return
        self._read_for = pod
        with suppress(KubeletxError):  # the pod is gone, or the head says that the agent does not answer
            self._history = await self._read_history()

    def fragments(self) -> Fragments:
        """Return the page as it is now; of a pod that is gone, the last known page with a head that says so."""
        pod = self.pod
        if pod is None:
            gone = render("pod_gone", namespace=self._namespace, name=self._name)
            return Fragments(parts={**self._last, "pod-head": gone})
        state, events = self._state, self._events(pod)
        summary = summarise(pod, self._now())
        volumes = [volume for volume in state.volumes if volume.pod_uid == pod.uid]
        parts = {
            "pod-head": render(
                "pod_head",
                pod=pod,
                summary=summary,
                tone=tone(summary.status),
                runtime=runtime_of(pod),
                why=why(pod, events[::-1], volumes),
                problem=state.problem,
                machine=pod.status.virtual_machine_status,
                revision=state.usage_revision,
            ),
            "pod-start": render("pod_start", start=start_rows(self._history.start)),
            "pod-usage": self._usage(pod, events),
            "pod-units": render("pod_units", units=[*units(pod)], pod=pod),
            "pod-tables": render(
                "pod_tables",
                volumes=volumes,
                sessions=sessions_of(state, pod.ref),
                conditions=pod.status.conditions,
                events=events,
            ),
        }
        self._last = parts
        return Fragments(parts=parts)

    def _events(self, pod: Pod) -> Sequence[Event]:
        about = [
            event
            for event in self._state.events.values()
            if event.involved_object.kind == "Pod" and event.involved_object.uid == pod.uid
        ]
        return about[::-1][:EVENTS]

    def _usage(self, pod: Pod, events: Sequence[Event]) -> str:
        """Return the plots. The values for plots by a script are in an attribute, as JSON."""
        usage = self._state.usage.get(pod.uid, Usage(0))
        times = [*self._state.times][-len(usage.memory) :] if usage.memory else []
        cpu_limit, memory_limit = limits(pod)
        marks = [*_marks(events, times)]
        numbered = [(sum(time <= at for time in times) - 1, word) for at, word in marks]
        values = {
            "times": [round(time.timestamp()) for time in times],
            "cpu": [*usage.cpu],
            "memory": [*usage.memory],
            "cpuLimit": cpu_limit,
            "memoryLimit": memory_limit,
            "marks": [(round(at.timestamp()), word) for at, word in marks],
        }
        return render(
            "pod_usage",
            values=msgspec.json.encode(values).decode(),
            memory_plot=sparkline(usage.memory, "Memory", memory_limit, marks=numbered, css="plot"),
            cpu_plot=sparkline(usage.cpu, "CPU", cpu_limit, marks=numbered, css="plot"),
            memory=[value for value in usage.memory if value is not None],
            memory_limit=memory_limit,
            cpu=[value for value in usage.cpu if value is not None],
            cpu_limit=cpu_limit,
            marks=marks,
        )


def find_pod(state: NodeState, namespace: str, name: str) -> Pod | None:
    """Return the newest pod of this name; None if there is none."""
    for pod in reversed(state.pods.values()):
        if (pod.namespace, pod.name) == (namespace, name):
            return pod
    return None


def units(pod: Pod) -> Iterator[Unit]:
    """Yield the pod's containers in the order in which they start, or its machine."""
    known = {status.name: status for status in pod.status.init_container_statuses}
    known |= {status.name: status for status in pod.status.container_statuses}
    known |= {status.name: status for status in pod.status.ephemeral_container_statuses}
    machine = machine_of(pod, on_vm_runtime=True) if pod.status.virtual_machine_status is not None else None
    if machine is not None:
        yield _unit(machine, "machine", known.get(machine.name))
        return
    for container in pod.spec.init_containers:
        is_sidecar = container.restart_policy == "Always"
        yield _unit(container, "sidecar" if is_sidecar else "init container", known.get(container.name))
    for container in pod.spec.containers:
        yield _unit(container, "container", known.get(container.name))
    for debugger in pod.spec.ephemeral_containers:
        yield _unit(debugger, "ephemeral container", known.get(debugger.name))


def _unit(spec: AnyUnit, role: str, status: ContainerStatus | None) -> Unit:
    state = status.state if status is not None else ContainerState()
    word, colour = "Waiting", "wait"
    if state.running is not None:
        word, colour = "Running", "good" if status is not None and status.ready else "wait"
    elif state.terminated is not None:
        word, colour = exit_text(state.terminated), "rest" if state.terminated.exit_code == 0 else "bad"
    elif state.waiting is not None:
        word = state.waiting.reason or word
        colour = tone(word)
    last = status.last_state.terminated if status is not None else None
    return Unit(
        spec=spec,
        role=role,
        status=status,
        state=word,
        tone=colour,
        last=exit_text(last) if last is not None else "",
        limits=", ".join(f"{name} {amount}" for name, amount in sorted(spec.resources.limits.items())),
        probes=[*_probes(spec)] if isinstance(spec, Container) else (),
    )


def _probes(container: Container) -> Iterator[str]:
    for name, probe in (
        ("startup", container.startup_probe),
        ("readiness", container.readiness_probe),
        ("liveness", container.liveness_probe),
    ):
        if probe is not None:
            yield f"{name}: {_probe(probe)} every {probe.period_seconds or 10} s"


def _probe(probe: Probe) -> str:
    if probe.http_get is not None:
        return f"GET :{probe.http_get.port}{probe.http_get.path or '/'}"
    if probe.tcp_socket is not None:
        return f"TCP :{probe.tcp_socket.port}"
    if probe.grpc is not None:
        return f"gRPC :{probe.grpc.port}"
    return " ".join(probe.exec.command) if probe.exec is not None else "unknown"


def _marks(events: Sequence[Event], times: Sequence[datetime]) -> Iterator[tuple[datetime, str]]:
    """Yield the freezes and wakes within these times. Of an event that came often, only first and last time are known."""
    for event in events:
        word = MARKS.get(event.reason or "")
        if word is None or not times:
            continue
        moments = {event.first_timestamp, event.last_timestamp, event.event_time} - {None}
        for at in sorted(moment for moment in moments if moment is not None):
            if times[0] <= at <= times[-1]:
                yield at, word


def pod_yaml(pod: Pod) -> str:
    """Return the pod as YAML without secrets, values of environment variables and arguments, which often have some."""
    value = msgspec.to_builtins(masked_pod(pod))
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for container in value.get("spec", {}).get(name, ()):
            if container.get("args"):
                container["args"] = [HIDDEN]
    return dump_yaml(value)
