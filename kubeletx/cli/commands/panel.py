"""``kubeletx panel``: shows a panel: a table, text or picture about the node that a plugin provides."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from kubeletx.api import Png, Text
from kubeletx.api import Table as PanelTable
from kubeletx.server.views import PanelContent, PanelView

from ..connection.client import AgentClient
from ..options.common import output_option, with_agent
from ..options.go_flags import boolean, command
from ..output.printers import Column, ObjectTable, print_list, print_object, write_picture

_COLUMNS = (
    Column("NAME", lambda row, _: row.name),
    Column("TITLE", lambda row, _: row.title),
    Column("PLUGIN", lambda row, _: row.plugin),
    Column("STATE", lambda row, _: row.state, state=True),
    Column("REASON", lambda row, _: row.reason, long=True),
)


@command(short_help="Show panels of plugins.")
@click.argument("name", required=False)
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Write a picture to this file; by default NAME.png. '-' is standard output.",
)
@boolean("--force", help="Overwrite the file.")
@output_option("json", "yaml")
@with_agent
def panel(agent: AgentClient, name: str | None, file: Path | None, force: bool, output: str | None) -> None:
    """Show what a plugin shows about the node: a table, a text or a picture. Without NAME: list the panels."""
    if name is None:
        print_list(agent.items("/v1/panels", PanelView), output, "panel", _COLUMNS)
        return
    content: PanelContent = agent.get(f"/v1/panels/{quote(name, safe='')}", PanelContent)  # type: ignore[arg-type] # a union
    if output:
        print_object(content, output)
        return
    match content:
        case PanelTable(columns=titles, rows=cells):
            for line in ObjectTable([_shown(title) for title in titles]).render(
                [[_shown(cell) for cell in row] for row in cells]
            ):
                click.echo(line)
        case Text(text=text):
            click.echo("\n".join(_shown(line) for line in text.rstrip("\n").split("\n")))
        case Png(data=data):
            write_picture(
                data, file if file is not None else Path(f"{name}.png"), f"panel/{name}", force=force
            )


def _shown(text: str) -> str:
    """Return the text without control characters, which could move the terminal's cursor."""
    return "".join(
        sign if sign.isprintable() or sign == "\t" else "\N{REPLACEMENT CHARACTER}" for sign in text
    )
