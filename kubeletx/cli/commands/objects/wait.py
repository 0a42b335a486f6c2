"""``kubeletx wait``: waits until objects have a condition, exist, or are gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from kubeletx.api import NotFound, TimedOut

from ...connection.client import AgentClient
from ...options.common import namespace_option, output_option, seconds_of, with_agent
from ...options.completing import complete_kinds
from ...options.exit_codes import ExitCode
from ...options.go_flags import boolean, command
from ...options.group import show
from ...output.kinds import OBJECT_PLURALS, ObjectKind, kinds_and_names
from ...output.printers import print_object
from ...output.selectors import parse_selector, select

LOOK_SECONDS: Final = 0.25
_WEEK_SECONDS: Final = 7 * 24 * 3600.0

Item = Mapping[str, Any]
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
@namespace_option
@output_option("json", "yaml", "name")
@with_agent
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
        found = _Objects(agent, kind, None if all_namespaces and not by_name else namespace, selector)
        first = found.read()
        for key in [(namespace, name) for name in names] if names else list(first):
            seen = True
            if key not in first and wanted not in ("create", "delete"):
                failed = bool(show(NotFound(f"{kind.singular} {key[1]!r} not found")))
                continue
            try:
                _report(kind, key[1], _wait(found, key, first.get(key), check, end), output)
            except TimedOut as error:
                failed = bool(show(error))
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
        found = [each for values in expression.find(item) for each in values] if item is not None else []
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


class _Objects:
    """Objects of one kind that the command waits for. `namespace` None: of all namespaces."""

    def __init__(self, agent: AgentClient, kind: ObjectKind, namespace: str | None, selector: str) -> None:
        self.kind = kind
        self._agent = agent
        self._namespace = namespace
        self._wanted = parse_selector(selector)

    def read(self) -> dict[tuple[str, str], Item]:
        """Return the objects as JSON, by namespace (empty without one) and name."""
        kind = self.kind
        return {
            (kind.namespace(item) if kind.namespaced else self._namespace or "", kind.name(item)): _plain(
                item
            )
            for item in kind.fetch(self._agent)[0]
            if not kind.namespaced or self._namespace in (None, kind.namespace(item))
            if select(self._wanted, kind.labels(item))
        }


def _plain(item: Any) -> Item:
    plain: Item = msgspec.json.decode(msgspec.json.encode(item))
    return plain


def _uid(item: Item | None) -> Any:
    return item.get("metadata", {}).get("uid") if item is not None else None


def _wait(found: _Objects, key: tuple[str, str], first: Item | None, check: Check, end: float) -> Item | None:
    """Wait until the object passes the check; returns its last form. Raises TimedOut after the monotonic time `end`."""
    present, last = first, first
    while not check(present):
        if time.monotonic() >= end:
            raise TimedOut(f"timed out waiting for the condition on {found.kind.plural}/{key[1]}")
        time.sleep(LOOK_SECONDS)
        present = found.read().get(key)
        if first is not None and _uid(present) != _uid(first):
            present = None
        last = present or last
    return last


def _report(kind: ObjectKind, name: str, item: Item | None, output: str | None) -> None:
    if output in ("json", "yaml"):
        print_object(item or {}, output)
    else:
        click.echo(f"{kind.singular}/{name}" if output == "name" else f"{kind.singular}/{name} condition met")
