"""``kubeletx wait``: waits until objects have a condition, exist, or are gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
import msgspec

from kubeletx.api import NotFound, TimedOut

from ...connection.client import AgentClient, plain
from ...options.common import in_namespace, looks, output_option, seconds_of
from ...options.completing import complete_kinds
from ...options.exit_codes import ExitCode
from ...options.go_flags import boolean, command
from ...options.group import show
from ...output.kinds import OBJECT_PLURALS, ObjectKind, kinds_and_names

_WEEK_SECONDS: Final = 7 * 24 * 3600.0

Item = Mapping[str, Any]
Objects = Mapping[tuple[str, str], Item]
Check = Callable[[Item | None], bool]
"""Returns True if an object, as JSON, is as wanted; None: it does not exist, or has been replaced by another one."""


@command(short_help="Wait until objects have a condition or are gone.")
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="KIND NAME...",
    shell_complete=complete_kinds("pods", "node", "runtimes", "volumes", *OBJECT_PLURALS),
)
@click.option(
    "--for",
    "wanted",
    required=True,
    metavar="WHAT",
    help="create, delete, condition=NAME[=VALUE] such as condition=Ready, or jsonpath=PATH[=VALUE].",
)
@click.option(
    "--timeout",
    default="30s",
    metavar="DURATION",
    show_default=True,
    help="How long to wait; 0s: check once; negative: a week.",
)
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Objects with these labels.")
@boolean("--all", "every", help="All objects of the kind in the namespace.")
@boolean("-A", "--all-namespaces", help="With --all or --selector: in all namespaces.")
@output_option("name")
@in_namespace
def wait(
    agent: AgentClient,
    words: tuple[str, ...],
    wanted: str,
    timeout: str,
    selector: str,
    every: bool,
    all_namespaces: bool,
    namespace: str,
    output: str | None,
) -> int:
    """Wait until objects have a condition: 'wait pod/web --for=condition=Ready'.

    Exit code 1 if one of them does not have it when the time is over.
    """
    check = parse_for(wanted)
    seconds = -1.0 if timeout.startswith("-") else seconds_of("--timeout", timeout)
    end = time.monotonic() + (_WEEK_SECONDS if seconds < 0 else seconds)
    kinds = kinds_and_names(words)
    by_name = any(names for _, names in kinds)
    if by_name == bool(selector or every):
        raise click.UsageError("name the objects, or give --selector or --all")
    failed, seen = False, False
    for kind, names in kinds:
        read = partial(_read, agent, kind, None if all_namespaces and not by_name else namespace, selector)
        first = read()
        for key in [(namespace, name) for name in names] if names else list(first):
            seen = True
            if key not in first and wanted not in ("create", "delete"):
                failed = bool(show(NotFound(f"{kind.singular} {key[1]!r} not found")))
                continue
            if _wait(read, key, first.get(key), check, end):
                click.echo(f"{kind.singular}/{key[1]}{'' if output else ' condition met'}")
            else:
                what = f"{kind.plural}/{key[1]}"
                failed = bool(show(TimedOut(f"timed out waiting for the condition on {what}")))
    if not seen and wanted != "delete":
        click.echo("Error: no matching resources found", err=True)
        failed = True
    return ExitCode.FAILED if failed else ExitCode.OK


def parse_for(text: str) -> Check:
    """Return the check that a value of ``--for`` means. Raises UsageError."""
    word, equals, rest = text.partition("=")
    if word == "delete" and not equals:
        return lambda item: item is None
    if word == "create" and not equals:
        return lambda item: item is not None
    if word == "condition" and rest:
        name, _, value = rest.partition("=")
        return lambda item: item is not None and _has_condition(item, name, value or "true")
    if word == "jsonpath" and rest:
        return _parse_jsonpath(rest)
    raise click.UsageError(
        f"--for {text!r} is not create, delete, condition=NAME[=VALUE] or jsonpath=PATH[=VALUE]"
    )


def _parse_jsonpath(text: str) -> Check:
    """Return the check of ``{.status.phase}=Running``; without a value the field only has to exist."""
    from ...output.jsonpath import relaxed

    path, value = text, ""
    if match := re.fullmatch(r"('?\{.*\}'?)=(.*)|([^{=]+)=(.*)", text, re.DOTALL):
        path, value = match[1] or match[3], match[2] or match[4] or ""
    expression, wanted = relaxed(path.strip("'"), option="--for"), value.strip("'\"")

    def check(item: Item | None) -> bool:
        found = expression.find(item) if item is not None else []
        if wanted and len(found) > 1:
            raise click.UsageError(f"--for: {path} matches more than one value")
        return bool(found) and wanted in ("", *map(_shown, found))

    return check


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _has_condition(item: Item, name: str, value: str) -> bool:
    conditions: Sequence[Item] = item.get("status", {}).get("conditions") or ()
    return any(
        str(each.get("type", "")).lower() == name.lower()
        and str(each.get("status", "")).lower() == value.lower()
        for each in conditions
    )


def _read(agent: AgentClient, kind: ObjectKind, namespace: str | None, selector: str) -> Objects:
    """Return the objects as JSON, by namespace (empty without one) and name. `namespace` None: of all namespaces."""
    return {
        (kind.namespace(item) if kind.namespaced else namespace or "", kind.name(item)): plain(item)
        for item in kind.selected(agent, selector, namespace)
    }


def _uid(item: Item | None) -> Any:
    return item.get("metadata", {}).get("uid") if item is not None else None


def _wait(
    read: Callable[[], Objects], key: tuple[str, str], first: Item | None, check: Check, end: float
) -> bool:
    """Return True once the object passes the check, False after `end`; one with another UID is not this one."""
    for number, _ in enumerate(looks(end - time.monotonic())):
        present = read().get(key) if number else first
        if first is not None and _uid(present) != _uid(first):
            present = None
        if check(present):
            return True
    return False
