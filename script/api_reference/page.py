"""Makes the reference of kubeletx.api: signatures and docstrings of what an author of a plugin implements or calls."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import chain
from types import FunctionType
from typing import Final

import msgspec

from kubeletx import api
from kubeletx.api.host import HostServices

HEAD: Final = """\
# Reference of kubeletx.api

Made by `python -m script.api_reference`; do not edit. The signatures and docstrings of the protocols that a plugin
implements, of the objects that the agent passes to it, and of the helpers; then the values. All names are imported from
`kubeletx.api`. docs/plugin-authors.md describes how they fit together.
"""

SECTIONS: Final = {
    "The runtime": ("Runtime",),
    "Capabilities of runtimes": tuple(capability.__name__ for capability in api.CAPABILITIES),
    "Streams": ("Session",),
    "Other things that a plugin registers": (
        "HealthCheck",
        "PodSource",
        "AdmissionCheck",
        "Panel",
        "VolumeDriver",
    ),
    "What the hooks get as `register`": (
        "RegisterRuntime",
        "RegisterHealthCheck",
        "RegisterPodSource",
        "RegisterAdmissionCheck",
        "RegisterPanel",
        "RegisterVolumeDriver",
    ),
    "What the agent passes to a plugin": (
        "Host",
        "PluginHost",
        "VolumeHost",
        "Blocking",
        "Clock",
        "EventSink",
        "PodNetwork",
        "PodSourceSink",
        "Records",
        "ClusterObjects",
    ),
    "Helpers": (
        "BaseRuntime",
        "BaseVolumeDriver",
        "SpecFiles",
        "SandboxRecord",
        "UnitRecord",
        "UnitFollower",
        "SubprocessSession",
        "SharedPulls",
        "run_session",
        "matching",
        "stop_with_grace",
        "every_feature_but",
    ),
}


PARTS: Final = (HostServices,)
"""Protocols that only others of `SECTIONS` inherit from: their members are described there."""


def page() -> str:
    """Return the whole page as Markdown."""
    parts = [HEAD]
    shown: set[str] = set()
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts.extend(_described(name))
        shown.update(names)
    parts.append("## Values\n")
    parts.append("Frozen; every argument is a keyword, and a field with `=` may be left out.\n")
    for name in sorted(set(api.__all__) - shown, key=str.lower):
        found = getattr(api, name)
        if isinstance(found, type) and issubclass(found, msgspec.Struct):
            parts.extend(_value(found))
    return "\n".join(parts)


def _described(name: str) -> Iterator[str]:
    documented = getattr(api, name)
    yield f"### {name}\n"
    if isinstance(documented, FunctionType):
        yield _code([_signature(documented)])
        yield _text(documented)
        return
    yield _text(documented)
    shared = [base for base in documented.__bases__ if base in PARTS]
    for member, value in chain.from_iterable(vars(one).items() for one in (documented, *shared)):
        if member.startswith("_") and member not in ("__init__", "__call__"):
            continue
        function = _function(value)
        if function is None or not inspect.getdoc(function) or function.__doc__ is None:
            continue
        yield _code([_signature(function)])
        yield _text(function)


def _value(kind: type[msgspec.Struct]) -> Iterator[str]:
    lines = [f"class {kind.__name__}:"]
    for parent in reversed(kind.__mro__):
        if not (issubclass(parent, msgspec.Struct) and parent is not msgspec.Struct):
            continue
        body = _tree(parent).body
        lines += [
            f"    {ast.unparse(statement)}" for statement in body if isinstance(statement, ast.AnnAssign)
        ]
    yield f"### {kind.__name__}\n"
    yield _text(kind)
    if len(lines) > 1:
        yield _code(lines)


def _function(value: object) -> FunctionType | None:
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    return value if isinstance(value, FunctionType) else None


def _signature(function: FunctionType) -> str:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    marks = [f"@{ast.unparse(decorator)}\n" for decorator in node.decorator_list]
    start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    arguments = ast.unparse(node.args)
    line = f"{start} {node.name}({arguments}){result}"
    if len(line) > 110:
        line = f"{start} {node.name}(\n    {_broken(node.args)}\n){result}"
    return "".join(marks) + line


def _broken(arguments: ast.arguments) -> str:
    parts = re.split(r", (?=(?:\*\*?)?\w+(?::|=|,|$)|\*,|/)", ast.unparse(arguments))
    return ",\n    ".join(parts) + ","


def _tree(kind: type) -> ast.ClassDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    return node


def _text(documented: object) -> str:
    return (inspect.getdoc(documented) or "").replace("``", "`") + "\n"


def _code(lines: list[str]) -> str:
    return "\n".join(["```python", *lines, "```\n"])
