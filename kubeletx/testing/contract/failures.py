"""Failure messages of the contract suite: the broken sentence, what was found, and the plugin's own lines.

A traceback through pytest, asyncio and the suite helps no author. So a failed test shows the contract's sentence (from the
docstring in `kubeletx.api`), what was found, the last calls of the plugin, and the frames of the plugin's own code.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sysconfig
import textwrap
import traceback
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from .calls import METHODS, PluginCalls
from .watch import BlockedLoop

__tracebackhide__ = True

F = TypeVar("F", bound=Callable[..., Awaitable[None]])

SHOWN_CALLS = 6
SHOWN_FRAMES = 4
WIDTH = 110
_SUITE = str(Path(__file__).parent)
_STANDARD = sysconfig.get_paths()["stdlib"]
_FOREIGN = ("/_pytest/", "/pytest_asyncio/", "/pluggy/")


def about(method: str) -> Callable[[F], F]:
    """Decorator of a test: a failure cites the contract of `method`, not of the method that was called last."""

    def mark(test: F) -> F:
        test.contract_method = method  # type: ignore[attr-defined]
        return test

    return mark


def sentence_of(name: str) -> str:
    """Return the name of a test as a sentence."""
    return name.removeprefix("test_").replace("_", " ")


def contract_of(protocol: type, method: str) -> str:
    """Return the contract's words about a method of a protocol."""
    text = inspect.getdoc(getattr(protocol, method)) or ""
    return " ".join(text.split())


def explain(sentence: str, error: BaseException, calls: PluginCalls | None, method: str = "") -> str:
    """Return the message of a failed test. `method`: whose contract is cited; empty: of the last call."""
    records = calls.records if calls else []
    cited = method or (records[-1].method if records else "")
    text = str(error) or type(error).__name__
    if isinstance(error, Exception) and not isinstance(error, AssertionError):
        text = f"{type(error).__name__}: {text}"
    lines = [sentence, *_block("found", text)]
    protocol = calls.protocol_of(cited) if calls else METHODS.get(cited)
    if protocol is not None and (words := contract_of(protocol, cited)):
        lines += _block(f"contract of {protocol.__name__}.{cited}", words)
    if frames := plugin_frames(error):
        lines += ["  in the plugin:", *(f"    {frame}" for frame in frames)]
    if records:
        lines += ["  last calls of the plugin:", *(f"    {record}" for record in records[-SHOWN_CALLS:])]
    return "\n".join(lines)


def _block(title: str, text: str) -> list[str]:
    lines = textwrap.wrap(text, WIDTH) if "\n" not in text else text.split("\n")[:20]
    return [f"  {title}:", *(f"    {line}" for line in lines)]


def plugin_frames(error: BaseException) -> list[str]:
    """Return the frames of an error's traceback that are neither of the suite nor of Python or pytest."""
    frames = [
        f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_SUITE, "<"))
        and not any(part in frame.filename for part in _FOREIGN)
        and (not frame.filename.startswith(_STANDARD) or "site-packages" in frame.filename)
    ]
    return frames[-SHOWN_FRAMES:]


@contextlib.contextmanager
def explained(sentence: str, calls: PluginCalls | None, method: str = "") -> Iterator[None]:
    """Context manager that turns every error of the block into one readable failure without a traceback."""
    try:
        yield
        if calls and calls.watch.report:
            raise BlockedLoop(calls.watch.report)
    except (pytest.skip.Exception, CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if isinstance(error, pytest.fail.Exception) and not error.pytrace:
            raise  # explained before
        text = explain(sentence, error, calls, method)
        if calls:
            calls.watch.report = ""  # it is reported once, not again when the fixtures end
    else:
        return
    raise pytest.fail.Exception(text, pytrace=False) from None


def readable(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Decorator of a test of the suite: its failures are explained by `explain`."""

    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        calls = next(
            (
                argument.calls
                for argument in kwargs.values()
                if isinstance(getattr(argument, "calls", None), PluginCalls)
            ),
            None,
        )
        with explained(sentence_of(test.__name__), calls, getattr(test, "contract_method", "")):
            await test(*args, **kwargs)

    return run
