"""``kubeletx plugin new``: writes the distribution of a new plugin."""

from __future__ import annotations

import re
from pathlib import Path

import click

from kubeletx import __version__
from kubeletx.api import AlreadyExists

from ...options.go_flags import command
from .scaffold import KINDS, new_plugin

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LONGEST_NAME = 40


@command(short_help="Write a new plugin that passes its contract suite.")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(KINDS)),
    default="runtime",
    metavar="|".join(KINDS),
    help="What the plugin registers.  [default: runtime]",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="PATH",
    help="Directory to make.  [default: kubeletx-NAME]",
)
def new(name: str, kind: str, directory: Path | None) -> None:
    """Write a new plugin that passes its contract suite, for you to change.

    It is a distribution kubeletx-NAME with code, tests, a README and a script for continuous integration. NAME is what
    the plugin registers: lower-case letters, digits and dashes.
    """
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise click.UsageError(
            f"NAME: {name!r} is not a name; begin with a lower-case letter and use up to {LONGEST_NAME} "
            "lower-case letters, digits and single dashes"
        )
    target = directory or Path(f"kubeletx-{name}")
    if target.exists() and any(target.iterdir()):
        raise AlreadyExists(f"{target} is not empty; choose another --directory")
    for path, text in new_plugin(name, kind, __version__).items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (target / "ci.sh").chmod(0o755)
    click.echo(f"{target} written: a {KINDS[kind].words} plugin {name!r}")
    click.echo(f"Read:       {KINDS[kind].page} of kubeletx: what a {KINDS[kind].words} plugin must do")
    click.echo(f"Test it:    cd {target} && WHERE_KUBELETX_IS=/path/to/kubeletx ./ci.sh")
    click.echo(f"Install it: kubeletx plugin install {target}")
