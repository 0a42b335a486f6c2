"""Writes pictures to a file, or to standard output for ``-``."""

from __future__ import annotations

import sys
from pathlib import Path

import click


def write_picture(data: bytes, target: Path, what: str, *, force: bool) -> None:
    """Write a picture to the file `target`, or to standard output for ``-``. `force`: overwrite an existing file.

    `what`: object that the picture shows, for the message, such as vm/web. Raises UsageError if it cannot be written.
    """
    if str(target) == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        with target.open("wb" if force else "xb") as out:
            out.write(data)
    except FileExistsError as err:
        raise click.UsageError(f"{target} exists; give --force or another --file") from err
    except OSError as err:
        raise click.UsageError(f"cannot write {target}: {err.strerror}") from err
    click.echo(f"{what} written to {target}")
