"""Sections of the node's page: one for each room of the agent that is on and has something to show. Pure.

A section consists of small values, which one template shows: facts (term and value), tables of cells, a text or a picture, and
the commands that help. Actions are only shown as commands: the page itself is read-only.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kubeletx.api import Table, Text, names
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Node

from .room_values import (
    Edge,
    EdgeHealth,
    EdgeNode,
    Fornax,
    Image,
    PanelItem,
    Plugin,
    Registration,
    Silence,
    panel_path,
)
from .state import NodeState
from .values import Items, Session, Volume
from .words import frozen_memory, mib

MAX_ROWS: Final = 100
"""Rows of one table; the section says how many more there are."""


class Cell(msgspec.Struct, frozen=True):
    """Value in a table. `tone`: good, rest, wait or bad; number: aligned to the right. `href`: page about it."""

    text: str
    tone: str = ""
    href: str = ""


CellLike = Cell | str | int | datetime | None
"""What a table shows: a moment as its age, None as a dash."""


class Grid(msgspec.Struct, frozen=True):
    """A table. `columns`: headings, one for each cell of a row. `more`: number of rows that are not shown."""

    columns: Sequence[str]
    rows: Sequence[Sequence[CellLike]]
    title: str = ""
    more: int = 0


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One section. `name`: part of its element's id. `commands`: command line and what it does.

    `silence`: the agent does not answer; what is shown is its last answer. `picture`: path of an image.
    """

    name: str
    title: str
    note: str = ""
    facts: Sequence[tuple[str, CellLike]] = ()
    grids: Sequence[Grid] = ()
    text: str = ""
    picture: str = ""
    commands: Sequence[tuple[str, str]] = ()
    silence: Silence | None = None


def sections(state: NodeState) -> Mapping[str, Sequence[Section]]:
    """Return the sections of everything that has something to show, by room; a room that is off has none."""
    rooms: Mapping[str, Callable[[NodeState], Section | None]] = {
        "edge": _edge,
        "remedy": _remedy,
        "standby": _standby,
        "sessions": _sessions,
        "cores": _cores,
        "attachments": _attachments,
        "images": _images,
        "plugins": _plugins,
    }
    shown = {name: room(state) for name, room in rooms.items()}
    own = {name: () if section is None else (section,) for name, section in shown.items()}
    return {**own, "panels": tuple(_panels(state))}


# --- edge and remedy ---


def _edge(state: NodeState) -> Section | None:
    edge: Edge | None = state.others.get("/v1/edge")
    if edge is None:
        return _section(state, "edge", "Edge health", "/v1/edge")
    health, node = edge.health or EdgeHealth(), edge.node or EdgeNode()
    silent = edge.silence or ("" if edge.health else "the guardian has not published its status")
    verdict = Cell("healthy", "good") if health.is_healthy else Cell("not healthy", "bad")
    window = f"{health.remaining_test_time} s left" if health.remaining_test_time else ""
    waits = f", waits: {health.operation_held_by}" if health.operation_held_by else ""
    contact = f"{health.contact_source}, last contact {health.silent_seconds} s ago"
    boot = (node.reboot_reason, node.reboot_time, node.reboot_image and f"image before: {node.reboot_image}")
    facts = {
        "Verdict": Cell(f"unknown: {silent}", "wait") if silent else verdict,
        "Phase": health.phase,
        "Test window": window
        + (f", does not count now: {health.held_by}" if window and health.held_by else ""),
        "Operation": health.operation and health.operation + waits,
        "Drain": health.drain,
        "Maintenance": ", ".join(health.maintenance_reasons) or "on" if health.maintenance_mode else "",
        "Controller": contact if health.contact_source else "",
        "Last boot": ", ".join(filter(None, boot)),
        "Restarts": str(node.restart_counter or ""),
    }
    checks = []
    for check in health.checks:
        is_grave = check.level == "required"
        result = Cell("passes", "good") if check.ok else Cell("fails", "bad" if is_grave else "wait")
        checks.append(
            (check.name, check.level, result if check.ok is not None else "no result yet", check.message)
        )
    slots = [
        (
            f"{slot.partition_label} (running)"
            if slot.partition_label == node.cur_part
            else slot.partition_label,
            slot.partition_state,
            slot.short_version,
        )
        for slot in edge.slots
    ]
    return _section(
        state,
        *("edge", "Edge health", "/v1/edge"),
        facts=[(term, fact) for term, fact in facts.items() if fact],
        grids=(
            *_grid("Check Level Result Message", checks, "Checks"),
            *_grid("Slot State Version", slots, "Slots"),
        ),
        commands=(
            ("kubeletx health plan", "says what happens next, and why"),
            ("kubeletx health history", "shows the reasons of earlier boots"),
        ),
    )


_REMEDY: Final = re.compile(
    r"remedy\.kubeletx\.io/.*|remediation-(timestamp|podname)|remediation\.medik8s\.io/.*"
)
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


def _remedy(state: NodeState) -> Section | None:
    node: Node = state.others.get("/v1/node/cluster", Node())
    rows: list[Sequence[CellLike]] = [
        ("taint", Cell(taint.key, "bad"), f"{taint.value or ''}:{taint.effect}", taint.time_added)
        for taint in node.spec.taints
        if taint.key == _OUT_OF_SERVICE
    ]
    for kind, pairs in (("annotation", node.metadata.annotations), ("label", node.metadata.labels)):
        rows += [
            (kind, Cell(key, "wait"), value, None) for key, value in pairs.items() if _REMEDY.fullmatch(key)
        ]
    return _section(
        state,
        *("remedy", "Remedy", "/v1/node/cluster"),
        note="What a remedy controller has set on this node.",
        grids=_grid("Kind Name Value Age", rows),
        commands=((f"kubeletx remedy plan {node.metadata.name}", "says what happens next, and why"),),
    )


# --- pods, sessions, cores ---


def _standby(state: NodeState) -> Section | None:
    rows: list[Sequence[CellLike]] = []
    for pod in sorted(state.pods.values(), key=lambda pod: (pod.namespace, pod.name)):
        requested = pod.metadata.annotations.get(names.STANDBY, "")
        known = next((c for c in pod.status.conditions if c.type == names.STANDBY_CONDITION), None)
        if known is None:
            if requested:
                rows.append((_pod(pod), "no report yet", requested, None, None, ""))
            continue
        is_frozen, reason = known.status == "True", known.reason or ""
        word = Cell(reason, "rest" if is_frozen else "bad" if reason.endswith("Failed") else "")
        # The message of a frozen pod has its memory, too, which has a column of its own.
        freed = frozen_memory(pod) if is_frozen else ""
        memory = Cell(freed or "\u2013", "number")
        message = known.message or ""
        rows.append((_pod(pod), word, requested or "by command", memory, known.last_transition_time, message))
    return _section(
        state,
        *("standby", "Standby", ""),
        grids=_grid("Pod State Requested Memory_MiB,_before_→_after Since Message", rows),
        commands=(
            ("kubeletx pod activate NAME -n NAMESPACE", "wakes a pod"),
            ("kubeletx pod standby NAME -n NAMESPACE --hibernate", "freezes it and gives its memory back"),
        ),
    )


def _sessions(state: NodeState) -> Section | None:
    listed: Items[Session] = state.others.get("/v1/sessions", Items())
    rows = [
        (
            *(f"{session.namespace}/{session.name}", _named_pod(session.pod), session.application),
            *(session.state, len(session.clients), session.origin, session.ready_at or session.created_at),
            Cell("silent", "bad") if session.silent else session.heartbeat_at,
            f"{session.reason} {session.message}",
        )
        for session in listed.items
    ]
    return _section(
        state,
        *("sessions", "Sessions", "/v1/sessions"),
        grids=_grid("Session Pod Application State Clients From Age Last_message Reason", rows),
        commands=(("kubeletx session close NAMESPACE/NAME", "ends a session after its grace period"),),
    )


def _cores(state: NodeState) -> Section | None:
    fornax: Fornax = state.others.get("/v1/fornaxcore", Fornax())
    rows = []
    for core in fornax.cores:
        link = Cell("registered", "good") if core.registered else Cell("connected", "wait")
        is_behind = core.acknowledged != fornax.revision
        rows.append(
            (
                *(
                    core.address,
                    core.role,
                    link if core.connected else Cell("not connected", "bad"),
                    core.since,
                ),
                *(fornax.revision, Cell(str(core.acknowledged), "number wait" if is_behind else "number")),
                *(
                    core.queue,
                    sum(core.sent.values()),
                    core.received,
                    core.failures,
                    core.refused,
                    core.problem,
                ),
            )
        )
    columns = (
        "FornaxCore Role Connection Since Revision Acknowledged Queue Sent Received Failed Refused Problem"
    )
    return _section(
        state,
        *("cores", "FornaxCores", "/v1/fornaxcore"),
        note=f"Node {fornax.identifier} is {fornax.state}. Its revision {fornax.revision} is its last change.",
        grids=_grid(columns, rows),
        commands=(("kubeletx fornaxcore status -o yaml", "shows all counts"),),
    )


# --- volumes, images, plugins, panels ---


def _attachments(state: NodeState) -> Section | None:
    rows = [
        (
            str(volume.options.get("name") or volume.persistent_volume or volume.claim or volume.name),
            ", ".join(filter(None, (volume.driver, str(volume.options.get("backend") or "")))),
            _named_pod(f"{volume.namespace}/{volume.pod}"),
            _mode(volume),
            Cell(volume.state, "good" if volume.state == "ready" else "wait"),
            volume.since,
            Cell(f"{mib(volume.used_bytes)} of {mib(volume.capacity_bytes)}", "number"),
            volume.message,
        )
        for volume in state.volumes
        if volume.driver
    ]
    return _section(
        state,
        *("attachments", "Attachments", ""),
        note="Volumes of drivers. The message of a volume that waits names the holder on another node.",
        grids=_grid("Volume Driver Holder Mode State Since MiB_used Message", rows),
        commands=(
            ("kubeletx-flexvolume attachments", "shows the records of all nodes"),
            ("kubectl get staleattachments", "shows the garbage list of each node"),
        ),
    )


def _mode(volume: Volume) -> str:
    modes = ", ".join(volume.access_modes) or str(volume.options.get("accessModes") or "ReadWriteOnce")
    return f"{modes}, read-only" if volume.read_only else modes


def _panels(state: NodeState) -> Iterable[Section]:
    listed: Items[PanelItem] = state.others.get("/v1/panels", Items())
    for panel in listed.items:
        if panel.state == "unconfigured":
            continue
        path = panel_path(panel.name)
        shown: dict[str, Any] = {}
        match state.others.get(path):
            case None:
                shown["text"] = "" if path in state.silences else "no answer yet"
            case Table(columns=columns, rows=rows):
                shown["grids"] = (Grid(columns, rows[:MAX_ROWS], more=max(0, len(rows) - MAX_ROWS)),)
            case Text(text=text):
                shown["text"] = text
            case picture:
                # The number makes browsers load a picture that has changed.
                number = zlib.crc32(picture.data)
                shown["picture"] = f"/panels/{quote(panel.name, safe='')}.png?{number:x}"
                shown["note"] = picture.text
        yield Section(
            name=f"panel-{zlib.crc32(panel.name.encode()):x}",
            title=panel.title or panel.name,
            silence=state.silences.get(path),
            commands=((f"kubeletx panel {panel.name}", f"shows this panel of plugin {panel.plugin}"),),
            **shown,
        )


def _images(state: NodeState) -> Section | None:
    listed: Items[Image] = state.others.get("/v1/images", Items())
    stores: dict[tuple[str, ...], list[Image]] = {}
    for image in listed.items:
        stores.setdefault((image.store, *image.runtimes), []).append(image)
    grids: list[Grid] = []
    for (_, *runtimes), images in stores.items():
        images.sort(key=lambda image: (-image.size_bytes, image.ref))
        rows = [
            (
                *(
                    image.tags[0] if image.tags else image.ref,
                    Cell(mib(image.size_bytes), "number"),
                    _used(image),
                ),
                "this agent" if image.pulled_by_us else "others",
            )
            for image in images
        ]
        size = mib(sum(image.size_bytes for image in images))
        title = f"{', '.join(runtimes)}: {len(images)} images, {size} MiB"
        grids += _grid("Image MiB Used_by Pulled_by", rows, title)
    return _section(
        state,
        *("images", "Images", "/v1/images"),
        note=f"No answer from {', '.join(listed.missing)}." if listed.missing else "",
        grids=grids,
        commands=(("kubeletx image prune", "removes what kubeletx pulled and no pod uses"),),
    )


def _used(image: Image) -> str:
    pods = image.used_by
    text = ", ".join(pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
    return text or ("pinned" if image.pinned else "not used")


def _plugins(state: NodeState) -> Section | None:
    listed: Items[Plugin] = state.others.get("/v1/plugins", Items())
    rows: list[Sequence[CellLike]] = []
    for plugin in listed.items:
        if plugin.state == "disabled":
            continue
        hung = _hung(plugin.registrations)
        rows.append((plugin.name, plugin.version, _state(plugin.state), "", "", "", "", hung, plugin.reason))
        rows += [
            (
                *(f"process {process.pid}", "", "", process.runtime or "all but runtimes"),
                *(Cell(mib(process.memory_bytes), "number"), Cell(f"{process.cpu_seconds:.1f}", "number")),
                *(process.restarts, "", ""),
            )
            for process in plugin.processes
        ]
        rows += [
            (f"{each.hook} {each.name}", "", _state(each.state), "", "", "", "", _hung([each]), each.reason)
            for each in plugin.registrations
            if each.state not in ("ready", "unconfigured") or each.abandoned_calls
        ]
    disabled = [plugin.name for plugin in listed.items if plugin.state == "disabled"]
    return _section(
        state,
        *("plugins", "Plugins", "/v1/plugins"),
        note=f"Disabled: {', '.join(disabled)}." if disabled else "",
        grids=_grid("Plugin Version State Process_of MiB CPU_s Restarts Hung_calls Reason", rows),
        commands=(("kubeletx plugins -o wide", "shows what each plugin registers"),),
    )


def _state(word: str) -> Cell:
    tones = {"ready": "good", "degraded": "wait", "skipped": "rest"}
    return Cell(word, tones.get(word, "bad"))


def _hung(registrations: Iterable[Registration]) -> Cell:
    count = sum(sum(each.abandoned_calls.values()) for each in registrations)
    return Cell(str(count or ""), "number bad")


# --- parts ---


def _section(state: NodeState, name: str, title: str, path: str, **values: Any) -> Section | None:
    """Return a section; None if it has nothing to show. `path`: of the answer that it shows; empty: it is watched."""
    silence = state.silences.get(path)
    if values.get("grids") or values.get("facts"):
        return Section(name=name, title=title, silence=silence, **values)
    return Section(name=name, title=title, silence=silence) if silence is not None else None


def _grid(columns: str, rows: Sequence[Sequence[CellLike]], title: str = "") -> Sequence[Grid]:
    """Return a table; none without rows. `columns`: headings, with an underscore for a space."""
    heads = [column.replace("_", " ") for column in columns.split()]
    return (Grid(heads, rows[:MAX_ROWS], title, max(0, len(rows) - MAX_ROWS)),) if rows else ()


def _pod(pod: Pod) -> Cell:
    return _named_pod(f"{pod.namespace}/{pod.name}")


def _named_pod(ref: str) -> Cell:
    return Cell(ref, href=f"/pods/{quote(ref)}")
