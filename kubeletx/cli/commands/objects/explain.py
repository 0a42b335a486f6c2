"""``kubeletx explain``: the fields of pods and machines, from their types, and the annotations of kubeletx."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import click
import msgspec

from ...options.exit_codes import ExitCode
from ...options.go_flags import boolean, command
from ...output.words import did_you_mean

_ALIASES: Final = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "virtualmachine": "pod.spec.virtualMachine",
    "virtualmachines": "pod.spec.virtualMachine",
    "vm": "pod.spec.virtualMachine",
    "annotations": "pod.metadata.annotations",
}
_ANNOTATIONS: Final = "pod.metadata.annotations"
_SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean", bytes: "string"}
_DEEPEST: Final = 12


@command(short_help="Show the fields of pods and machines, and our annotations.")
@click.argument("path", metavar="pod|virtualMachine|annotations[.FIELD...]")
@boolean("--recursive", help="Show the names of all fields below.")
def explain(path: str, recursive: bool) -> int:
    """Show the fields of a kind or of one of its fields, such as pod.spec.containers.

    'explain annotations' shows the annotations of pods that only kubeletx has.
    """
    from kubeletx.kube.types.core import Pod

    kind, _, rest = path.partition(".")
    if kind.lower() not in _ALIASES:
        raise click.UsageError(
            f"kind {kind!r} cannot be explained{did_you_mean(kind.lower(), list(_ALIASES))} "
            "(known: pod, virtualMachine, annotations); 'kubectl explain' knows the kinds of a cluster"
        )
    whole = _ALIASES[kind.lower()] + (f".{rest}" if rest else "")
    shown, text = whole.split(".")[1:], inspect.getdoc(Pod) or ""
    type_: Any = Pod
    for name in shown:
        owner = _struct(type_)
        fields = _fields(owner) if owner is not None else {}
        if name not in fields:
            raise click.UsageError(f'field "{name}" does not exist{did_you_mean(name, list(fields))}')
        type_, text = fields[name]
    click.echo("KIND:       Pod\nVERSION:    v1\n")
    if shown:
        click.echo(f"FIELD: {shown[-1]} <{_name(type_)}>\n")
    struct = _struct(type_)
    doc = _doc(struct) if struct is not None else ""
    _describe(doc if doc.startswith(text) else f"{text}. {doc}".strip())
    if whole == _ANNOTATIONS:
        for key, meaning in own_annotations():
            click.echo(f"  {key}")
            _describe(meaning, head="")
    elif struct is not None:
        click.echo("FIELDS:")
        for line in _lines(struct, recursive=recursive, depth=1):
            click.echo(line)
    return ExitCode.OK


def _describe(text: str, head: str = "DESCRIPTION:") -> None:
    words = " ".join(text.split())
    click.echo("\n".join([*([head] if head else []), *_wrapped(words or "<empty>"), ""]))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 76, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _lines(struct: type[msgspec.Struct], *, recursive: bool, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, (type_, text) in _fields(struct).items():
        yield f"{indent}{name}\t<{_name(type_)}>"
        inner = _struct(type_)
        if recursive and inner is not None and depth < _DEEPEST:
            yield from _lines(inner, recursive=True, depth=depth + 1)
        elif text and not recursive:
            yield from _wrapped(text)


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, tuple[Any, str]]:
    """Return type and description of each field, by its name in manifests.

    The description comes from the docstring of the struct or of a base; else it is that of the field's type. It may be
    empty.
    """
    hints = typing.get_type_hints(struct)
    said: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        said.update(_sentences(base.__doc__ or "", struct))
    found = {}
    for field in msgspec.structs.fields(struct):
        type_ = _struct(hints[field.name])
        whole = _doc(type_).partition(". ")[0] if type_ is not None else ""
        found[field.encode_name] = hints[field.name], said.get(field.name, whole).rstrip(".")
    return found


def _sentences(text: str, struct: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """Yield the fields that a docstring describes, as in "`name`: what it is.", with what is said of them."""
    for match in re.finditer(r"`(\w+)`(?:: | )(.*?)(?=[.;] `|\Z)", " ".join(text.split())):
        yield match[1], _camel(match[2], struct)


def _doc(struct: type[msgspec.Struct]) -> str:
    """Return the docstring without the descriptions of fields, which follow the text on the whole."""
    text = re.split(r"(?:^|(?<=[.;] ))`\w+`(?::| None:)", " ".join((struct.__doc__ or "").split()))[0]
    return _camel(text.strip(), struct)


def _camel(text: str, struct: type[msgspec.Struct]) -> str:
    """Return the text with the names of fields as in manifests."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return re.sub(r"`(\w+)`", lambda match: names.get(match[1], match[1]), text).replace("``", "")


def _struct(type_: Any) -> type[msgspec.Struct] | None:
    """Return the struct in a type such as ``tuple[Container, ...]``; None if there is none."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    return next((found for part in typing.get_args(type_) if (found := _struct(part)) is not None), None)


def _name(type_: Any) -> str:
    """Return a type as kubectl names it, such as ``[]Container`` or ``map[string]string``."""
    origin, parts = (
        typing.get_origin(type_),
        [part for part in typing.get_args(type_) if part is not type(None)],
    )
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_name(part) for part in parts)
    if origin is tuple:
        return f"[]{_name(parts[0])}"
    if origin is dict:
        return f"map[string]{_name(parts[1])}"
    if isinstance(type_, type):
        known = next((word for scalar, word in _SCALARS.items() if type_ is scalar), "")
        return known or type_.__name__
    return str(getattr(type_, "__supertype__", type_))


def own_annotations() -> Iterator[tuple[str, str]]:
    """Yield the annotations of pods that users write, with their meaning: the documented constants of `api.names`."""
    spec = importlib.util.find_spec("kubeletx.api.names")
    loader: Any = spec.loader if spec is not None else None
    body = ast.parse(loader.get_source("kubeletx.api.names")).body
    for item, after in itertools.pairwise(body):
        if not (isinstance(item, ast.AnnAssign) and isinstance(item.value, ast.Constant)):
            continue
        said = (
            after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        )
        if str(said).startswith("Annotation:"):
            yield str(item.value.value), str(said).removeprefix("Annotation:").strip()
