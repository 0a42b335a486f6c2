"""Output of ``describe pod``: the pod's spec, its status and its events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kubeletx.api import names
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.kube.pod_summary import summarise
from kubeletx.kube.start_timeline import PodAction, PodStart, start_line
from kubeletx.kube.text.human import age
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStatus,
    EnvVar,
    Nic,
    Pod,
    Probe,
    Volume,
)
from kubeletx.kube.types.event import Event

from ..output.columns import last_seen, runtime_of
from .sheet import Sheet


def describe_history(items: Sequence[PodAction], now: datetime) -> list[str]:
    """Return the lines that show the agent's last actions on a pod, oldest first (``describe --history``)."""
    rows = [
        (
            age(item.at, now),
            f"x{item.count}" if item.count > 1 else "",
            f"{item.seconds:.2f}s",
            item.action,
            item.result,
        )
        for item in items
    ]
    return Sheet().table("History", ("Age", "Count", "Took", "Action", "Result"), rows).lines()


def describe_pod(
    pod: Pod, events: Sequence[Event], now: datetime, start: PodStart | None = None
) -> list[str]:
    """Return the lines that ``kubeletx describe pod`` prints for one pod. `events`: the events about it."""
    sheet = Sheet()
    meta, spec, status = pod.metadata, pod.spec, pod.status
    sheet.add("Name", meta.name).add("Namespace", meta.namespace).add("UID", meta.uid)
    sheet.add("Runtime", runtime_of(pod)).add("Source", meta.annotations.get(names.CONFIG_SOURCE))
    sheet.add("Node", "/".join(filter(None, (spec.node_name, status.host_ip))))
    sheet.add("Start Time", _time(status.start_time))
    sheet.add_if("Start", start_line(start, now) if start is not None else None)
    sheet.add_map("Labels", meta.labels).add_map("Annotations", meta.annotations, ": ")
    shown = summarise(pod, now).status
    is_resting = shown in ("Standby", "Hibernated")
    sheet.add("Status", shown if meta.deletion_timestamp or is_resting else status.phase)
    if meta.deletion_timestamp:
        sheet.add("Termination Grace Period", f"{meta.deletion_grace_period_seconds or 0}s")
    sheet.add_if("Reason", status.reason).add_if("Message", status.message)
    sheet.add("IP", status.pod_ip).add_if("IPs", [entry.ip for entry in status.pod_ips])
    sheet.add_if("Runtime Class Name", spec.runtime_class_name)
    _containers(sheet, "Init Containers", spec.init_containers, status.init_container_statuses)
    _containers(sheet, "Containers", spec.containers, status.container_statuses)
    _machine(sheet, pod)
    sheet.add_if("Standby", _standby(pod))
    rows = [[c.type, c.status, c.reason or "", c.message or ""] for c in status.conditions]
    sheet.table("Conditions", ("Type", "Status", "Reason", "Message"), rows)
    _volumes(sheet, spec.volumes)
    sheet.add("QoS Class", status.qos_class)
    sheet.add_map("Node-Selectors", spec.node_selector)
    add_events(sheet, events, now)
    return sheet.lines()


def _standby(pod: Pod) -> str:
    """Return state, time of the last change, and memory of a pod that stands by; empty for other pods."""
    standby = next(
        (condition for condition in pod.status.conditions if condition.type == names.STANDBY_CONDITION), None
    )
    if standby is None:
        return ""
    since = f"{standby.reason} since {_time(standby.last_transition_time)}"
    return f"{since} ({standby.message})" if standby.message else since


def add_events(sheet: Sheet, events: Sequence[Event], now: datetime) -> None:
    """Add the events to the sheet, as its last section."""
    rows = [
        [event.type or "", event.reason or "", last_seen(event, now), (event.message or "").strip()]
        for event in events
    ]
    sheet.table("Events", ("Type", "Reason", "Age", "Message"), rows)


def _containers(
    sheet: Sheet, title: str, containers: Sequence[Container], statuses: Sequence[ContainerStatus]
) -> None:
    if not containers:
        return
    by_name = {status.name: status for status in statuses}
    section = sheet.nest(title)
    for container in containers:
        _container(section.nest(container.name), container, by_name.get(container.name))


def _container(sheet: Sheet, container: Container, status: ContainerStatus | None) -> None:
    sheet.add("Container ID", status.container_id if status else None)
    sheet.add("Image", container.image).add("Image ID", status.image_id if status else None)
    sheet.add("Ports", [f"{port.container_port}/{port.protocol or 'TCP'}" for port in container.ports])
    sheet.add(
        "Host Ports",
        [f"{port.host_port}/{port.protocol or 'TCP'}" for port in container.ports if port.host_port],
    )
    sheet.add_if("Command", container.command).add_if("Args", container.args)
    if status is not None:
        _state(sheet, "State", status.state)
        if status.last_state != ContainerState():
            _state(sheet, "Last State", status.last_state)
        sheet.add("Ready", str(status.ready)).add("Restart Count", str(status.restart_count))
    if container.resources.limits:
        sheet.add_map("Limits", container.resources.limits, ": ")
    if container.resources.requests:
        sheet.add_map("Requests", container.resources.requests, ": ")
    for title, probe in (
        ("Liveness", container.liveness_probe),
        ("Readiness", container.readiness_probe),
        ("Startup", container.startup_probe),
    ):
        sheet.add_if(title, _probe(probe) if probe else None)
    sheet.add("Environment", [_variable(variable) for variable in container.env])
    mounts = [
        f"{mount.mount_path} from {mount.name} ({'ro' if mount.read_only else 'rw'}"
        + (f', path="{mount.sub_path}")' if mount.sub_path else ")")
        for mount in container.volume_mounts
    ]
    sheet.add("Mounts", mounts)


def _state(sheet: Sheet, title: str, state: ContainerState) -> None:
    if state.running is not None:
        sheet.add(title, "Running").add("  Started", _time(state.running.started_at))
    elif state.terminated is not None:
        ended = state.terminated
        sheet.add(title, "Terminated").add_if("  Reason", ended.reason).add_if("  Message", ended.message)
        sheet.add("  Exit Code", str(ended.exit_code))
        sheet.add("  Started", _time(ended.started_at)).add("  Finished", _time(ended.finished_at))
    else:
        waiting = state.waiting
        sheet.add(title, "Waiting")
        sheet.add_if("  Reason", waiting.reason if waiting else None)
        sheet.add_if("  Message", waiting.message if waiting else None)


def _machine(sheet: Sheet, pod: Pod) -> None:
    machine, status = machine_of(pod, on_vm_runtime=True), pod.status.virtual_machine_status
    if machine is None or (pod.spec.virtual_machine is None and status is None):
        return
    section = sheet.nest("Virtual Machine").nest(machine.name)
    section.add("Image", machine.image).add_if("Power Spec", machine.power_spec)
    if machine.resources.limits:
        section.add_map("Limits", machine.resources.limits, ": ")
    if status is None:
        return
    section.add("Machine ID", status.virtual_machine_id).add_if("Image ID", status.image_id)
    section.add("State", status.state).add("Power State", status.power_state)
    section.add_if("Last Termination", status.last_termination_state)
    section.add("Ready", str(status.ready)).add("Restart Count", str(status.restart_count))
    if status.resources.limits and status.resources.limits != machine.resources.limits:
        section.add_map("Granted", status.resources.limits, ": ")
    nics = [_nic(nic) for nic in pod.spec.nics]
    section.add_if("Interfaces", nics).add_if("VPC", pod.spec.vpc)


def _nic(nic: Nic) -> str:
    words = [
        nic.name or "",
        f"network {nic.subnet_name}" if nic.subnet_name else "",
        f"port {nic.port_id}" if nic.port_id else "",
        nic.ip_address or "",
    ]
    return " ".join(filter(None, words))


def _volumes(sheet: Sheet, volumes: Sequence[Volume]) -> None:
    if not volumes:
        sheet.add("Volumes", None)
        return
    section = sheet.nest("Volumes")
    for volume in volumes:
        section.add(volume.name, _volume(volume))


def _volume(volume: Volume) -> str:
    if volume.empty_dir is not None:
        words = [
            volume.empty_dir.medium or "",
            f"limit {volume.empty_dir.size_limit}" if volume.empty_dir.size_limit else "",
        ]
        return " ".join(["EmptyDir", *filter(None, words)])
    if volume.host_path is not None:
        return f"HostPath {volume.host_path.path}" + (
            f" ({volume.host_path.type})" if volume.host_path.type else ""
        )
    given = [
        name for name in volume.__struct_fields__ if name != "name" and getattr(volume, name) is not None
    ]
    return "".join(word.capitalize() for word in given[0].split("_")) if given else ""


def _probe(probe: Probe) -> str:
    if probe.exec is not None:
        what = f"exec {list(probe.exec.command)}"
    elif probe.http_get is not None:
        get = probe.http_get
        what = f"http-get {(get.scheme or 'HTTP').lower()}://{get.host or ''}:{get.port}{get.path or '/'}"
    elif probe.tcp_socket is not None:
        what = f"tcp-socket {probe.tcp_socket.host or ''}:{probe.tcp_socket.port}"
    elif probe.grpc is not None:
        what = f"grpc :{probe.grpc.port} {probe.grpc.service or ''}".rstrip()
    else:
        what = "unknown"
    return (
        f"{what} delay={probe.initial_delay_seconds or 0}s timeout={probe.timeout_seconds or 1}s "
        f"period={probe.period_seconds or 10}s #success={probe.success_threshold or 1} "
        f"#failure={probe.failure_threshold or 3}"
    )


def _variable(variable: EnvVar) -> str:
    source = variable.value_from
    if source is None:
        return f"{variable.name}: {variable.value or ''}"
    if source.field_ref is not None:
        return f"{variable.name}: (field {source.field_ref.field_path})"
    if source.resource_field_ref is not None:
        return f"{variable.name}: (resource {source.resource_field_ref.resource})"
    return f"{variable.name}: (from another object)"


def _time(moment: datetime | None) -> str | None:
    return moment.strftime("%a, %d %b %Y %H:%M:%S %z") if moment is not None else None
