"""The click groups: they import subcommands when these are used, and print errors as one line.

`kubeletx --help` must be quick. So a group has a table with the name, module and one line of help of each subcommand;
it imports the module only to run the subcommand or to show the subcommand's own help.
"""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from kubeletx.api.errors import InvalidConfig, InvalidPod, KubeletxError
from kubeletx.api.text import printable

from ..output.words import did_you_mean
from .exit_codes import ExitCode

_PASSING = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    *(errno.EADDRINUSE, errno.EADDRNOTAVAIL),
)
"""Errors of a full or broken disk, of a busy machine, and of an address that is not there yet."""


class Lazy(NamedTuple):
    """Command that is not imported yet.

    `target`: where it is, as ``module:attribute``. `help`: its line in the list of commands.
    """

    target: str
    help: str


class LazyGroup(click.Group):
    """click group that imports a command only when it is used. For a mistyped command it suggests a similar one."""

    def __init__(
        self, *args: Any, lazy: dict[str, Lazy], instead: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        """`lazy`: the commands by name, in the order of the help.

        `instead`: command line to suggest for each word that is a command of similar programs, and not of this one.
        """
        super().__init__(*args, **kwargs)
        self.lazy = lazy
        self.instead = instead or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of the command and return it; None for an unknown name."""
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command as click does. Raises UsageError, with a suggestion, for an unknown one."""
        if args and args[0] not in self.lazy and not args[0].startswith("-"):
            use = self.instead.get(args[0])
            hint = f"; use {use!r}" if use else did_you_mean(args[0], list(self.lazy))
            raise click.UsageError(f"unknown command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into the help without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.lazy.items()])


class ErrorGroup(LazyGroup):
    """Outermost click group. It prints errors as one line on standard error and exits with an `ExitCode`."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command and exit the process. An exception that is not caught here is a bug, shown as a traceback."""
        extra["standalone_mode"] = False
        try:
            code = super().main(args, *rest, **extra)
        except click.exceptions.Exit as done:
            code = done.exit_code
        except click.UsageError as error:
            error.show()
            code = ExitCode.USAGE
        except click.ClickException as error:
            error.show()
            code = ExitCode.FAILED
        except (click.Abort, KeyboardInterrupt):
            code = ExitCode.INTERRUPTED
        except BrokenPipeError:
            code = _quiet_pipe()
        except KubeletxError as error:
            code = show(error)
        except UnicodeEncodeError as error:
            code = show(_not_utf8(error))
        sys.exit(int(code or 0))


def show(error: KubeletxError) -> ExitCode:
    """Print the error on standard error, and return the exit code.

    If it contains several errors (`errors`), prints each on a line of its own.
    """
    each: Sequence[KubeletxError] = getattr(error, "errors", None) or (error,)
    for problem in each:
        click.echo(f"Error: {problem.message}", err=True)
    is_usage = isinstance(error, InvalidConfig | InvalidPod) and not _may_pass(error)
    return ExitCode.USAGE if is_usage else ExitCode.FAILED


def _may_pass(error: KubeletxError) -> bool:
    """Return True if a state of the machine, such as a full disk, caused the error: a retry may help."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _PASSING


def _not_utf8(error: UnicodeEncodeError) -> InvalidConfig:
    """Return the error for an argument that is not UTF-8 and so cannot be sent to the agent."""
    problem = f"{printable(str(error.object))!r} is not UTF-8"
    return InvalidConfig(field="arguments", problem=problem, fix="give names as UTF-8")


def _quiet_pipe() -> ExitCode:
    """Discard all further output and return OK, after the reader of standard output (such as head) has ended."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return ExitCode.OK
