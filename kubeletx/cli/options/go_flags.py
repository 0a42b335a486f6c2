"""Options in the syntax of Go's pflag, as users of kubectl, crictl and the kubelet type them.

pflag differs from click in two ways. A boolean may have no value or one after ``=`` (``--follow``, ``--follow=false``,
``-f=true``); it never takes the next argument as its value. A value that is joined to a short option may have an equals
sign: ``-o=json`` means the same as ``-ojson``. So a command first rewrites its arguments to click's syntax
(`spell_out`, pure). Booleans are options of class `BooleanOption`; after the rewriting they always have a value.
Source: spf13/pflag, parseLongArg and parseSingleShortArg.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


class Spelling(NamedTuple):
    """Syntax of one name of an option, such as ``-f`` or ``--no-wait``.

    `boolean`: the option is a boolean, which may have a value after ``=``. `value`: value of a boolean that has none,
    false for a name such as ``--no-wait``.
    """

    name: str
    """The name to use instead, such as ``--follow`` for ``-f``."""
    boolean: bool = False
    value: str = "true"
    flag: bool = False
    """True for a plain switch of click, which accepts no value."""


class GoBoolean(click.types.BoolParamType):
    """click type of a boolean value that accepts Go's texts, such as ``true``, ``T``, ``1``, ``false``, ``0``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Convert Go's text for true or false to a bool; fails for any other text."""
        if isinstance(value, str):
            if value not in (*_TRUE, *_FALSE):
                self.fail(f"{value!r} is neither true nor false", param, ctx)
            return value in _TRUE
        return bool(value)


class BooleanOption(click.Option):
    """Option for a boolean. click parses it with a value: `Command` adds ``=true`` if the user gave no value."""

    stands_alone = True

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the option to the parser with exactly one value; help and completion show it without a value."""
        parser.add_option(
            obj=self, opts=[*self.opts, *self.secondary_opts], dest=self.name, action="store", nargs=1
        )


def boolean(*names: str, help: str, default: bool = False, **more: Any) -> Callable[[F], F]:
    """Return a decorator that adds a boolean option to a command.

    `names`: as for `click.option`; ``--wait/--no-wait`` also adds the name for False. `more`: further arguments of
    `click.option`.
    """
    return click.option(
        *names, cls=BooleanOption, is_flag=True, type=GoBoolean(), default=default, help=help, **more
    )


class Command(click.Command):
    """click command that accepts options in the syntax of Go's pflag, and ``--root-dir``, which selects the agent."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        if all(param.name != "root_dir" for param in self.params):
            self.params.append(
                click.Option(
                    ["--root-dir"],
                    type=click.Path(path_type=Path),
                    metavar="PATH",
                    help="Root directory of the agent.",
                    expose_value=False,
                    callback=_use_root_dir,
                )
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the arguments to click's syntax, then parse them."""
        spellings = spellings_of(self.get_params(ctx))
        return super().parse_args(ctx, spell_out(args, spellings, only_front=not ctx.allow_interspersed_args))


def _use_root_dir(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None and ctx.obj is not None:
        ctx.obj = ctx.obj._replace(root_dir=value)


class Group(click.Group):
    """click group whose commands accept options in the syntax of Go's pflag."""

    command_class = Command


def command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a `Command` of a function; like `click.command`, with the same arguments."""
    return click.command(name, cls=Command, **attributes)


def spellings_of(params: Sequence[click.Parameter]) -> dict[str, Spelling]:
    """Return the syntax of every name of every option in `params`, by the name with its dashes."""
    spellings = {}
    for option in params:
        if not isinstance(option, click.Option):
            continue
        is_boolean = bool(getattr(option, "stands_alone", False))
        name = next((text for text in option.opts if text.startswith("--")), option.opts[0])
        is_switch = option.is_flag and not is_boolean
        for text in option.opts:
            spellings[text] = Spelling(name, is_boolean, flag=is_switch)
        for text in option.secondary_opts:
            spellings[text] = Spelling(name, is_boolean, value="false")
    return spellings


def spell_out(args: Sequence[str], spellings: dict[str, Spelling], *, only_front: bool = False) -> list[str]:
    """Rewrite arguments from pflag's syntax to click's; unknown options are unchanged.

    Arguments after ``--`` are unchanged. `only_front`: so is everything from the first argument that is not an option
    (a subcommand).
    """
    result: list[str] = []
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            return [*result, arg, *rest]
        if arg.startswith("--"):
            result += _long(arg, rest, spellings)
        elif arg.startswith("-") and len(arg) > 1:
            result += _short(arg, rest, spellings)
        elif only_front:
            return [*result, arg, *rest]
        else:
            result.append(arg)
    return result


def refuse_detached_value(args: Sequence[str], spellings: dict[str, Spelling]) -> None:
    """Raise UsageError if the first argument that is not an option is a boolean's value, as in ``--follow false``.

    `args`: arguments of a command; the first one that is not an option names a subcommand.
    """
    words = spell_out(args, spellings, only_front=True)
    front = next((index for index, word in enumerate(words) if not word.startswith("-")), len(words))
    if front == len(words) or words[front] not in (*_TRUE, *_FALSE):
        return
    before = args[: len(args) - (len(words) - front)]
    known = spellings.get(before[-1]) if before else None
    if known is not None and known.boolean:
        raise click.UsageError(
            f"{before[-1]} and its value are two arguments; write {before[-1]}={words[front]}"
        )


def _long(arg: str, rest: list[str], spellings: dict[str, Spelling]) -> list[str]:
    name, equals, value = arg.partition("=")
    known = spellings.get(name)
    if known is None or known.flag:
        return [arg]
    if not known.boolean:
        return [arg] if equals or not rest else [f"{arg}={rest.pop(0)}"]
    if known.value == "false":
        value = {**dict.fromkeys(_TRUE, "false"), **dict.fromkeys(_FALSE, "true")}.get(value, value)
    return [f"{known.name}={value if equals else known.value}"]


def _short(arg: str, rest: list[str], spellings: dict[str, Spelling]) -> list[str]:
    """Rewrite one argument with short options to click's syntax.

    Examples: ``-it``, ``-i=false``, ``-oyaml``, ``-o=yaml``, ``-o yaml``, and combinations such as
    ``-Aoyaml``. `rest`: the arguments after `arg`; if the option's value is the first of them, it is removed there.
    """
    result: list[str] = []
    letters = arg[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        known = spellings.get(f"-{letter}")
        if known is None:
            return [*result, f"-{letter}{letters}"]
        if known.flag:
            result.append(f"-{letter}")
        elif known.boolean and not letters.startswith("="):
            result.append(f"{known.name}={known.value}")
        elif letters or known.boolean:
            return [*result, f"{known.name}={letters.removeprefix('=')}"]
        elif rest:
            return [*result, f"{known.name}={rest.pop(0)}"]
        else:
            return [*result, f"-{letter}"]
    return result
