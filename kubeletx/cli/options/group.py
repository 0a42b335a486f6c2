"""The click groups: subcommands that are imported when used, and errors printed as one line.

`kubeletx --help` must be quick, so a group has its commands' names, modules and one line of help, and imports a module
only to run its command or to show its own help.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from kubeletx.api.errors import InvalidConfig, InvalidPod, KubeletxError
from kubeletx.api.text import printable

from .exit_codes import ExitCode


class Lazy(NamedTuple):
    """A command that is not imported yet: its ``module:attribute`` and its help line."""

    target: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands are `Lazy`. Typos get a suggestion."""

    def __init__(self, *args: Any, lazy: dict[str, Lazy], **kwargs: Any) -> None:
        """`lazy`: command name → its location, in the order of the help."""
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names, in the order given."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of the command."""
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve like click, with a suggestion for an unknown command."""
        if args and args[0] not in self.lazy and not args[0].startswith("-"):
            raise click.UsageError(
                f"unknown command {args[0]!r}{did_you_mean(args[0], list(self.lazy))}", ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help lines without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.lazy.items()])


class ErrorGroup(LazyGroup):
    """The outermost group: errors become one line on standard error and an exit code."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run and exit; a traceback means a bug."""
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
    """Print each mistake on one line; returns the exit code."""
    each: Sequence[KubeletxError] = getattr(error, "errors", None) or (error,)
    for one in each:
        click.echo(f"Error: {one.message}", err=True)
    return ExitCode.USAGE if isinstance(error, InvalidConfig | InvalidPod) else ExitCode.FAILED


def _not_utf8(error: UnicodeEncodeError) -> InvalidConfig:
    """Error for an argument that is not UTF-8 and cannot be sent to the agent."""
    problem = f"{printable(str(error.object))!r} is not UTF-8"
    return InvalidConfig(field="arguments", problem=problem, fix="give names as UTF-8")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """``; did you mean 'x'?``, or an empty text."""
    import difflib  # here: only a typo needs its 0.5 MiB

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _quiet_pipe() -> ExitCode:
    """Exit quietly after the reader (head, less) has gone: this is no error, and nothing more may be written."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return ExitCode.OK
