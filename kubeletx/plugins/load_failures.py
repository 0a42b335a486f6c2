"""Describes why a plugin could not be loaded, always with a place, and with the traceback for the debug log."""

from __future__ import annotations

import re
import sys
import traceback
from importlib.metadata import EntryPoint

from kubeletx.api import Unavailable
from kubeletx.runtimes.plugins.failures import message_of, package_of, place_of

_LONGEST = 20_000
_HOOK = re.compile(r"\w*register_\w+")


def place_of_failure(point: EntryPoint, error: BaseException) -> str:
    """Return where the plugin failed to load, as words that follow the error.

    This is ``file:line`` of the plugin's code that raised the exception, else of the hook that the exception names, else
    the file of the plugin's module. If nothing of the plugin was imported, it is the entry point; empty for an
    Unavailable, which the agent raises itself before the import.
    """
    if place := place_of(error, package_of(point.module)):
        return f"at {place}"
    if isinstance(error, Unavailable):
        return ""
    module = sys.modules.get(point.module)
    for name in _HOOK.findall(message_of(error) or ""):
        code = getattr(getattr(module, name, None), "__code__", None)
        if code is not None:
            return f"at {code.co_filename}:{code.co_firstlineno}"
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return f"at {file}"
    return f"entry point {point.name} = {point.value}"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception as Python prints it; a short text if the plugin's own code prevents it."""
    try:
        return "".join(traceback.format_exception(error))[-_LONGEST:].rstrip("\n")
    except BaseException:  # noqa: BLE001 - the text of an exception is code of the plugin too
        return f"{type(error).__name__}: its traceback cannot be printed"
