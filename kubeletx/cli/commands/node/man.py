"""``kubeletx man``: writes the man pages."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from ...options.go_flags import command


@command(short_help="Write the man pages into a directory.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.pass_context
def man(ctx: click.Context, directory: Path) -> None:
    """Write kubeletx.1 and kubeletx-agent.8 into DIR, and print their paths. Files that exist are replaced."""
    from ...setup.man import man_pages

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in man_pages(cast(click.Group, ctx.find_root().command)).items():
            (directory / name).write_text(text)
            click.echo(directory / name)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from error
