"""Options and helpers that several subcommands share."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from ..connection.client import AgentClient
from .settings import Invocation

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_NAMESPACE = "default"
LOOK_SECONDS = 0.2
_TEMPLATES = ("jsonpath", "go-template", "custom-columns")
"""Formats with a text after an equals sign; all commands that print JSON have them."""


def with_agent(function: F) -> F:
    """Decorator that passes an `AgentClient` of the agent on ``--root-dir`` as first argument."""

    @click.pass_obj
    @functools.wraps(function)
    def wrapper(invocation: Invocation, /, *args: Any, **kwargs: Any) -> Any:
        return function(
            AgentClient(invocation.socket_path, longest_seconds=invocation.longest_seconds), *args, **kwargs
        )

    return wrapper  # type: ignore[return-value]  # the same command with one argument filled in


def namespace_option(function: F) -> F:
    """Decorator that adds the option ``-n`` (``--namespace``) to a command; its value is never None."""
    return click.option(
        "-n",
        "--namespace",
        default=None,
        callback=_namespace,
        metavar="NAME",
        help=f"Namespace of the pod.  [default: {DEFAULT_NAMESPACE}]",
    )(function)


def _namespace(ctx: click.Context, _: click.Parameter, value: str | None) -> str:
    """Return the namespace given after the subcommand, else the one given before it, else ``default``."""
    return value or ctx.find_root().params.get("namespace") or DEFAULT_NAMESPACE


def in_namespace(function: F) -> F:
    """Decorator that does what `with_agent` and `namespace_option` do."""
    return namespace_option(with_agent(function))


class OutputFormat(click.Choice):  # type: ignore[type-arg]  # has no type arguments in click 8.1
    """click type of ``-o``: one of the given formats, or a template such as ``jsonpath={.metadata.name}``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format; for a template ``FORMAT=TEXT``, checked. Raises UsageError or InvalidConfig."""
        if str(value).partition("=")[0] not in _TEMPLATES or "json" not in self.choices:
            return str(super().convert(value, param, ctx))
        from ..output.templates import checked

        return checked(str(value))


def output_option(*formats: str) -> Callable[[F], F]:
    """Return a decorator that adds the option ``-o`` (``--output``) with these formats and templates to a command."""
    output = click.option(
        "-o",
        "--output",
        type=OutputFormat(formats),
        metavar="|".join(formats),
        help="Output format; also jsonpath=TEXT, go-template=TEXT and custom-columns=SPEC.",
    )
    return lambda function: output(color_option(function) if "wide" in formats else function)


color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    expose_value=False,
    callback=lambda ctx, _, value: ctx.meta.update({"kubeletx.color": value}),
    metavar="auto|always|never",
    help="Colours of states; auto: on a terminal, unless NO_COLOR is set.",
)


def split_pod(argument: str) -> str:
    """Return the pod's name from ``NAME``, ``pod/NAME``, ``pods/NAME`` or ``po/NAME``.

    Raises UsageError for another kind.
    """
    kind, slash, name = argument.partition("/")
    if not slash:
        return argument
    if kind not in ("pod", "pods", "po"):
        raise click.UsageError(f"{argument!r} is not a pod; write NAME or pod/NAME")
    return name


def seconds_of(option: str, text: str) -> float:
    """Parse a duration such as 30s to seconds. Raises UsageError, which names the flag `option`."""
    from kubeletx.kube.text.duration import parse_duration

    try:
        return parse_duration(text)
    except ValueError as err:
        raise click.UsageError(f"{option}: {text!r} {err}") from err


def duration(name: str, default: str, help: str) -> Callable[[F], F]:
    """Return a decorator that adds an option with a duration such as 30s; its value is in seconds."""
    return click.option(
        name,
        default=default,
        metavar="DURATION",
        show_default=True,
        callback=lambda _, __, value: seconds_of(name, value),
        help=help,
    )


def looks(seconds: float) -> Iterator[float]:
    """Yield the time since the start, in seconds: at once, then every `LOOK_SECONDS`, and last when `seconds` are over."""
    began = time.monotonic()
    while True:
        passed = time.monotonic() - began
        yield passed
        if passed >= seconds:
            return
        time.sleep(min(LOOK_SECONDS, max(0.0, seconds - passed)))
