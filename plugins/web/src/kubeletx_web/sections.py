"""Sections of the node's page: one for each room of the agent that is on and has something to show. Pure.

The macros of ``room.html`` make the HTML. The agent's answers are plain JSON, perhaps of another version: a field that is
missing is left out, and a section that cannot be made of an answer says so.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from jinja2 import UndefinedError
from markupsafe import Markup

from kubeletx.api import names

from .state import NodeState, panel_path
from .templates import room_macros
from .values import field, listed, picture_of
from .words import condition, frozen_memory

_REMEDY: Final = re.compile(
    r"remedy\.kubeletx\.io/.*|remediation-(timestamp|podname)|remediation\.medik8s\.io/.*"
)
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


def sections(state: NodeState) -> Mapping[str, Markup]:
    """Return the sections of everything that has something to show, by name of the room; a room that is off has none."""
    shown = {name: _section(state, name, *room) for name, room in _ROOMS.items()}
    panels = listed(state.others.get("/v1/panels"))
    shown["panels"] = Markup("").join(
        _panel(state, panel) for panel in panels if panel.get("state") != "unconfigured"
    )
    return shown


def sessions_of(state: NodeState, pod: str) -> Markup:
    """Return a table of the sessions of a pod; empty without sessions. `pod`: namespace/name."""
    answer = state.others.get("/v1/sessions")
    some = [each for each in listed(answer) if each.get("pod") == pod]
    return _body("sessions", some, answer) if some else Markup("")


def _section(
    state: NodeState, name: str, title: str, path: str, choose: Callable[[NodeState, Any], Any]
) -> Markup:
    answer = state.others.get(path)
    chosen = choose(state, answer)
    body = _body(name, chosen, answer) if chosen else Markup("")
    silence = state.silences.get(path)
    return room_macros().section(name, title, silence, body) if body or silence else Markup("")


def _body(macro: str, *values: Any) -> Markup:
    try:
        return Markup(getattr(room_macros(), macro)(*values))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UndefinedError):
        return Markup(room_macros().unreadable())


def _marks(_: NodeState, node: Any) -> Sequence[Mapping[str, Any]]:
    """Return what a remedy controller has set on the node."""
    marks = [
        {**taint, "kind": "taint", "value": f"{taint.get('value') or ''}:{taint.get('effect')}"}
        for taint in listed(field(node, "spec", {}), "taints")
        if taint.get("key") == _OUT_OF_SERVICE
    ]
    for kind in ("annotation", "label"):
        pairs: dict[str, Any] = field(field(node, "metadata", {}), f"{kind}s", {})
        marks += [
            {"kind": kind, "key": key, "value": value}
            for key, value in pairs.items()
            if _REMEDY.fullmatch(key)
        ]
    return marks


def _standby(state: NodeState, _: Any) -> Sequence[Mapping[str, Any]]:
    rows = []
    for pod in sorted(state.pods.values(), key=lambda pod: (pod.namespace, pod.name)):
        requested = pod.metadata.annotations.get(names.STANDBY)
        known = condition(pod, names.STANDBY_CONDITION)
        if requested or known is not None:
            # The message of a frozen pod has its memory, too, which has a column of its own.
            rows.append(
                {"pod": pod.ref, "requested": requested, "known": known, "memory": frozen_memory(pod)}
            )
    return rows


def _largest_first(_: NodeState, images: Any) -> Sequence[Mapping[str, Any]]:
    return sorted(listed(images), key=lambda image: (-field(image, "sizeBytes", 0), field(image, "ref", "")))


def _panel(state: NodeState, panel: Mapping[str, Any]) -> Markup:
    name = field(panel, "name", "")
    path = panel_path(name)
    content, silence, source = state.others.get(path), state.silences.get(path), ""
    if content is None:
        content = {"text": "" if silence else "no answer yet"}
    if (picture := picture_of(content)) is not None:
        # The number makes browsers load a picture that has changed.
        source = f"/panels/{quote(name, safe='')}.png?{zlib.crc32(picture):x}"
    title = str(panel.get("title") or name)
    body = _body("panel", {**panel, "title": title}, content, source)
    number = zlib.crc32(name.encode(errors="replace"))
    return Markup(room_macros().section(f"panel-{number:x}", title, silence, body))


_ROOMS: Final[Mapping[str, tuple[str, str, Callable[[NodeState, Any], Any]]]] = {
    "edge": ("Edge health", "/v1/edge", lambda _, edge: edge),
    "remedy": ("Remedy", "/v1/node/cluster", _marks),
    "standby": ("Standby", "", _standby),
    "sessions": ("Sessions", "/v1/sessions", lambda _, sessions: listed(sessions)),
    "cores": ("FornaxCores", "/v1/fornaxcore", lambda _, fornax: listed(fornax, "cores")),
    "attachments": (
        "Attachments",
        "",
        lambda state, _: [each for each in state.volumes if each.get("driver")],
    ),
    "images": ("Images", "/v1/images", _largest_first),
    "plugins": ("Plugins", "/v1/plugins", lambda _, plugins: listed(plugins)),
}
"""Title, path of the answer (empty: everything is watched), and what the macro shows of it, by name of the macro."""
