"""The page of one pod."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from kubeletx.api import KubeletxError, names
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.kube.masking import HIDDEN, masked_pod
from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.requests import measured_limits
from kubeletx.kube.text.yaml import dump_yaml
from kubeletx.kube.types.core import AnyUnit, ContainerStatus, Pod
from kubeletx.kube.types.event import Event

from .agent import Agent, pod_path
from .sections import sessions_of
from .start import History, start_rows
from .state import NodeState
from .svg import sparkline
from .templates import render
from .why import exit_text, why
from .words import runtime_of, tone

EVENTS: Final = 100
MARKS: Final[Mapping[str, str]] = {
    names.Event.STANDBY: "frozen",
    names.Event.HIBERNATED: "hibernated",
    names.Event.ACTIVATED: "woken",
}
"""Words in the plots for the events of freezes and wakes."""


class PodPage:
    """Renders the page of one pod."""

    def __init__(
        self, state: NodeState, namespace: str, name: str, now: Callable[[], datetime], agent: Agent
    ) -> None:
        """`agent`: is asked for the pod's history."""
        self._state = state
        self._namespace = namespace
        self._name = name
        self._now = now
        self._agent = agent
        self._history = History()
        self._pod: Pod | None = None
        """The pod as it was the last time."""

    async def html(self) -> str:
        """Return the page as it is now; of a pod that is gone, the last known page, which says so."""
        state = self._state
        now = state.pod(self._namespace, self._name)
        if now is not None and now is not self._pod:
            self._pod = now
            with suppress(KubeletxError):  # the pod is gone, or the head says that the agent does not answer
                path = pod_path(self._namespace, self._name, "history")
                self._history = await self._agent.get(path, History)
        pod = self._pod
        if pod is None:
            return render("pod_live", pod=None, namespace=self._namespace, name=self._name)
        events = [
            event
            for event in reversed(state.events.values())
            if event.involved_object.kind == "Pod" and event.involved_object.uid == pod.uid
        ][:EVENTS]
        volumes = [volume for volume in state.volumes if volume.get("podUid") == pod.uid]
        summary = summarise(pod, self._now())
        return render(
            "pod_live",
            pod=pod,
            is_gone=now is None,
            summary=summary,
            tone=tone(summary.status),
            runtime=runtime_of(pod),
            why=why(pod, events[::-1], volumes),
            problem=state.problem,
            machine=pod.status.virtual_machine_status,
            revision=state.usage_revision,
            start=start_rows(self._history.start),
            units=[*units(pod)],
            volumes=volumes,
            sessions=sessions_of(state, pod.ref),
            events=events,
            **_usage(state, pod, events),
        )


def _usage(state: NodeState, pod: Pod, events: Sequence[Event]) -> Mapping[str, Any]:
    """Return the plots. The values for plots by a script are in an attribute, as JSON."""
    cpu, memory = state.usage_of(pod.uid)
    times = [*state.times][-len(memory) :] if memory else []
    cpu_limit, memory_limit = measured_limits(pod.spec)
    marks = [*_marks(events, times)]
    numbered = [(sum(time <= at for time in times) - 1, word) for at, word in marks]
    values = {
        "times": [round(time.timestamp()) for time in times],
        "cpu": cpu,
        "memory": memory,
        "cpuLimit": cpu_limit,
        "memoryLimit": memory_limit,
        "marks": [(round(at.timestamp()), word) for at, word in marks],
    }
    return {
        "values": msgspec.json.encode(values).decode(),
        "memory_plot": sparkline(memory, "Memory", memory_limit, marks=numbered, css="plot"),
        "cpu_plot": sparkline(cpu, "CPU", cpu_limit, marks=numbered, css="plot"),
        "memory": [value for value in memory if value is not None],
        "memory_limit": memory_limit,
        "cpu": [value for value in cpu if value is not None],
        "cpu_limit": cpu_limit,
        "marks": marks,
    }


def _marks(events: Sequence[Event], times: Sequence[datetime]) -> Iterator[tuple[datetime, str]]:
    """Yield the freezes and wakes within these times. Of an event that came often, only first and last time are known."""
    for event in events:
        word = MARKS.get(event.reason or "")
        moments = {event.first_timestamp, event.last_timestamp, event.event_time}
        for at in sorted(moment for moment in moments if moment is not None and moment.tzinfo is not None):
            if word is not None and times and times[0] <= at <= times[-1]:
                yield at, word


class Unit(NamedTuple):
    """One container or machine of the pod. `status`: None before it has one. `last`: how it ended the last time."""

    spec: AnyUnit
    role: str
    status: ContainerStatus | None
    state: str
    tone: str
    last: str


def units(pod: Pod) -> Iterator[Unit]:
    """Yield the pod's containers in the order in which they start, or its machine."""
    status, spec = pod.status, pod.spec
    machine = machine_of(pod, on_vm_runtime=True) if status.virtual_machine_status is not None else None
    by_role: Mapping[str, Sequence[AnyUnit]] = {
        "init container": spec.init_containers,
        "container": spec.containers,
        "ephemeral container": spec.ephemeral_containers,
    }
    known = (
        *status.init_container_statuses,
        *status.container_statuses,
        *status.ephemeral_container_statuses,
    )
    by_name = {each.name: each for each in known}
    for role, specs in by_role.items() if machine is None else (("machine", [machine]),):
        for each in specs:
            is_sidecar = role == "init container" and getattr(each, "restart_policy", None) == "Always"
            yield _unit(each, "sidecar" if is_sidecar else role, by_name.get(each.name))


def _unit(spec: AnyUnit, role: str, status: ContainerStatus | None) -> Unit:
    word, colour, last = "Waiting", "wait", ""
    if status is not None:
        state = status.state
        if state.running is not None:
            word, colour = "Running", "good" if status.ready else "wait"
        elif state.terminated is not None:
            word, colour = exit_text(state.terminated), "bad" if state.terminated.exit_code else "rest"
        elif state.waiting is not None and state.waiting.reason:
            word, colour = state.waiting.reason, tone(state.waiting.reason)
        last = exit_text(status.last_state.terminated) if status.last_state.terminated else ""
    return Unit(spec, role, status, word, colour, last)


def pod_yaml(pod: Pod) -> str:
    """Return the pod as YAML without secrets, values of environment variables and arguments, which often have some."""
    value = msgspec.to_builtins(masked_pod(pod))
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for container in value.get("spec", {}).get(name, ()):
            if container.get("args"):
                container["args"] = [HIDDEN]
    return dump_yaml(value)
