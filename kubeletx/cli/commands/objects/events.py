"""``kubeletx events``: shows events, as ``get events`` with the flags of ``kubectl events``."""

from __future__ import annotations

import click

from ...options.common import namespace_option
from ...options.go_flags import boolean, command
from ..get import get

_TYPES = {"normal": "Normal", "warning": "Warning"}


@command(short_help="Show events.")
@click.option("--for", "about", default="", metavar="KIND/NAME", help="Only events about this object.")
@click.option("--types", default="", metavar="TYPES", help="Only events of these types: Normal, Warning.")
@boolean("-w", "--watch", help="Keep running and show new events.")
@boolean("-A", "--all-namespaces", help="All namespaces.")
@boolean("--no-headers", help="Print no headings.")
@click.option("-o", "--output", default="", metavar="FORMAT", help="Output format, as of 'kubeletx get'.")
@namespace_option
@click.pass_context
def events(
    ctx: click.Context,
    about: str,
    types: str,
    watch: bool,
    all_namespaces: bool,
    no_headers: bool,
    output: str,
    namespace: str,
) -> int:
    """Show events of pods, runtimes and the node: the same as 'kubeletx get events', with kubectl's flags."""
    wanted = {word.strip().lower() for word in types.split(",") if word.strip()}
    if unknown := wanted - set(_TYPES):
        raise click.UsageError(f"valid --types are Normal or Warning, not {min(unknown)!r}")
    args = ["events", f"--namespace={namespace}"]
    args += [f"--for={about}"] if about else []
    args += [f"--output={output}"] if output else []
    args += [f"--field-selector=type={_TYPES[word]}" for word in wanted] if len(wanted) == 1 else []
    given = {"--watch": watch, "--all-namespaces": all_namespaces, "--no-headers": no_headers}
    args += [flag for flag, is_given in given.items() if is_given]
    with get.make_context("get", args, parent=ctx) as inner:
        return int(get.invoke(inner))
