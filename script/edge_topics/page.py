"""The text of docs/edge-topics.md: topics with their fields, items with their limits, sections of the settings."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import json
import pkgutil
import textwrap
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from kubeletx.health import slots
from kubeletx.health.checks.base import NodeCheck
from kubeletx.health.checks.section import KINDS
from kubeletx.health.config import ITEMS
from kubeletx.health.devices.hardware import HardwareSettings
from kubeletx.health.devices.leds import LedSettings
from kubeletx.health.drain import DrainRequester, DrainState
from kubeletx.health.model import BootReason, Reach
from kubeletx.health.topics import ANY, PUBLISHED, READ, HealthTopic
from kubeletx.health.validation import Phase
from kubeletx.health.watchdog.ages import WatchLimits
from script.drawings.text import table, yes

_HEAD: Final = """\
# Topics and settings of the guardian

Generated from the code (`kubeletx/health`). Do not edit this page: run `.venv/bin/python -m script.edge_topics`. A test
compares the page with the code. [edge.md](edge.md) has examples.

A topic is a directory of JSON files, `RUN/AGENT/TOPIC/KEY.json`; RUN is `/run`, or the directory of `--run-dir`. To
publish, write a new file beside it and rename it. To write it again is the sign of life, with the same content
too. Unknown fields are ignored, and an absent field has its default. Names and fields are those of EVE; HealthStatus and
KubeletxStatus are kubeletx's own.
"""

_SECTIONS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "watchdog": HardwareSettings,
    "watchdog.agents.NAME": WatchLimits,
    "leds": LedSettings,
}
"""Sections of the configuration file that are mappings."""
_ENUMS: Final[tuple[type[enum.Enum], ...]] = (BootReason, Reach, Phase, DrainState, DrainRequester)


def page() -> str:
    """Text of the whole page."""
    return "\n".join(_parts())


def _parts() -> Iterator[str]:
    yield _HEAD
    inner: dict[str, type[msgspec.Struct]] = {}
    for title, topics in (("Published by the guardian", PUBLISHED), ("Read by the guardian", READ)):
        yield f"## {title}\n"
        for topic in topics:
            yield from _described(topic.kind, f"`{_place(topic)}`\n\n")
            inner |= {t.__name__: t for f in msgspec.structs.fields(topic.kind) for t in _structs(f.type)}
    for topic in (*PUBLISHED, *READ):
        inner.pop(topic.name, None)
    yield "## Values in topics\n"
    for kind in inner.values():
        yield from _described(kind)
    for words in _ENUMS:
        yield f"### {words.__name__}\n\n{', '.join(_word(one) for one in words)}.\n"
    yield "## Items\n"
    yield (
        "In the file of `--config`, by `kubeletx health config NAME=VALUE`, or in the topic ConfigItemValueMap; later ones in\n"
        "this list win.\n"
    )
    yield table(
        ["item", "default", "values", "meaning"],
        [
            [f"`{name}`", str(item.default), ", ".join(item.words) or f"{item.minimum} to {item.maximum}", item.about]
            for name, item in ITEMS.items()
        ],
    )  # fmt: skip
    yield "\n## Sections of the configuration file\n"
    yield "Beside the items the YAML file of `--config` has `backend` (see [edge.md](edge.md)) and:\n"
    for section, kind in _SECTIONS.items():
        yield from _described(kind, name=f"`{section}`")
    yield "## Kinds of checks\n"
    yield from _described(NodeCheck, name="`checks`")
    shared = {field.name for field in msgspec.structs.fields(NodeCheck)}
    for name, check in sorted(KINDS.items()):
        yield from _described(check, name=f"kind `{name}`", without=shared)
    yield "## Slots\n"
    headings = ["backend", "tested with its loader", "the loader counts tries", "limits"]
    yield table(headings, sorted(_backends())) + "\n"


def _backends() -> Iterator[list[str]]:
    for module in pkgutil.iter_modules(slots.__path__, f"{slots.__name__}."):
        for kind in vars(importlib.import_module(module.name)).values():
            abilities = getattr(kind, "abilities", None)
            name = module.name.rpartition(".")[2].replace("_", "-")
            if (
                isinstance(abilities, slots.Abilities)
                and name in slots.BACKENDS
                and kind.__module__ == module.name
            ):
                proof = abilities.proof or "**no, not supported yet**"
                yield [f"`{name}`", proof, yes(abilities.counts_tries), "; ".join(abilities.limits)]


def _described(
    kind: type[msgspec.Struct], place: str = "", name: str = "", without: Collection[str] = ()
) -> Iterator[str]:
    """Yield the heading, the docstring and the table of fields of a type."""
    yield f"### {name or kind.__name__}\n\n{place}{_spelled(inspect.getdoc(kind) or '', kind)}\n"
    texts = _texts(kind)
    _, components = msgspec.json.schema_components([kind], ref_template="{name}")
    properties = components[kind.__name__]["properties"]
    rows = [
        [
            f"`{field.encode_name}`",
            _type(properties[field.encode_name]),
            _default(field),
            texts.get(field.name, ""),
        ]
        for field in msgspec.structs.fields(kind)
        if field.name not in without
    ]
    if rows:
        yield table(["field", "type", "default", "meaning"], rows) + "\n"


def _place(topic: HealthTopic) -> str:
    base, agent = "PERSIST" if topic.is_persistent else "RUN", "AGENT" if topic.agent == ANY else topic.agent
    return f"{base}/{agent}/{topic.name}/KEY.json"


def _texts(kind: type) -> dict[str, str]:
    """Return the docstrings of fields: the string after each."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    texts = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            texts[ast.unparse(field.target)] = " ".join(_spelled(ast.literal_eval(below.value), kind).split())
    return texts


def _spelled(text: str, kind: type) -> str:
    """Return a docstring as Markdown: fields by their names in JSON, links to the enumerations."""
    text = text.replace("``", "`")
    for field in msgspec.structs.fields(kind):
        text = text.replace(f"`{field.name}`", f"`{field.encode_name}`")
    for linked in _ENUMS:
        home = linked.__module__.removeprefix("kubeletx.health.")
        text = text.replace(f"`{home}.{linked.__name__}`", f"[{linked.__name__}](#{linked.__name__.lower()})")
    return text


def _word(member: enum.Enum) -> str:
    if isinstance(member, BootReason):
        return f"{member.value} {member.text}"
    return str(member.value) if isinstance(member, str) else f"{member.value} {member.name}"


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in getattr(kind, "__args__", ()):
        yield from _structs(part)


def _type(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema as words."""
    if "$ref" in schema:
        return str(schema["$ref"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"])
    return str(schema.get("type", "any"))


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return (
        f"`{json.dumps(default)}`"
        if isinstance(default, str | int | float | dict | list | tuple | None)
        else ""
    )
