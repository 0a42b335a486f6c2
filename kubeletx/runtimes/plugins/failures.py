"""Describes exceptions of plugin code: what was raised, at which line of the plugin, and whether it was no answer. Pure.

An exception that a plugin did not translate to a `KubeletxError` is one of two things. A lost connection, or a socket
or host that is not there, means that the backend did not answer. Everything else is a fault of the plugin, also an
OSError such as FileNotFoundError of a file: a retry does not help, so users have to see it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from types import TracebackType
from typing import Final

from kubeletx.api import Internal, KubeletxError

LONGEST_TEXT: Final = 8192
"""Most characters of a text of a plugin, such as an error or a log line, that the agent keeps."""

_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN})
_AGENT = frozenset({"kubeletx", "pluggy", "importlib", "contextlib"})


def is_no_answer(error: BaseException) -> bool:
    """Return True if the exception means that the backend did not answer.

    ENOENT without a file name comes from a connection to a UNIX socket that does not exist; `open` names its file.
    """
    if isinstance(error, ConnectionError | asyncio.IncompleteReadError | socket.gaierror):
        return True
    if not isinstance(error, OSError):
        return False
    return error.errno in _UNREACHABLE or (error.errno == errno.ENOENT and error.filename is None)


def words_of(error: BaseException) -> str:
    """Return type and message of an exception; only the type if it has no message, or if its `__str__` fails."""
    name = shortened(type(error).__name__)
    text = shortened(message_of(error) or "")
    return f"{name}: {text}" if text else name


def message_of(error: BaseException) -> str | None:
    """Return the message of an exception; None if its `__str__` fails."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - __str__ is code of the plugin too
        return None


def shortened(text: str) -> str:
    """Return a text of a plugin, cut after `LONGEST_TEXT` characters."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… ({len(text) - LONGEST_TEXT} characters left out)"


def limited(error: KubeletxError) -> KubeletxError:
    """Return an error of a plugin whose texts are cut; another error if it cannot be shown at all."""
    message = message_of(error)
    if message is None:
        return Internal(f"{words_of(error)}: its message cannot be read")
    if len(message) > LONGEST_TEXT:
        for name, value in vars(error).items():
            if isinstance(value, str):
                vars(error)[name] = shortened(value)
        error.args = (shortened(message),)
        if len(message_of(error) or "") > len(error.args[0]):  # the plugin's class has a `__str__` of its own
            return Internal(error.args[0])
    return error


def failure_text(error: BaseException, package: str = "") -> str:
    """Return words and place of an exception, such as ``ValueError: no url (at /x/wasm.py:12)``.

    `package`: see `place_of`.
    """
    words, place = words_for_users(error), place_of(error, package)
    return f"{words} (at {place})" if place else words


def words_for_users(error: BaseException) -> str:
    """Return type and message of an exception, as `words_of`.

    The type of a KubeletxError is left out, since its message is made for users.
    """
    words = words_of(error)
    return words.removeprefix(f"{type(error).__name__}: ") if isinstance(error, KubeletxError) else words


def package_of(module: str) -> str:
    """Return the top-level package of a plugin's module; the module itself if it is part of kubeletx."""
    top = module.partition(".")[0]
    return module if top == "kubeletx" else top


def place_of(error: BaseException, package: str = "") -> str:
    """Return ``file:line`` of the innermost call in the plugin's `package`, as `package_of` returns it.

    Without such a call: of the innermost call outside the agent; empty if there is none. A SyntaxError has the place
    that it is about.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    own = other = ""
    step: TracebackType | None = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        module = str(frame.f_globals.get("__name__", ""))
        place = f"{frame.f_code.co_filename}:{step.tb_lineno}"
        if place.startswith("<"):
            pass  # code without a file, such as code of exec or of Python's own frozen modules
        elif package and (module == package or module.startswith(f"{package}.")):
            own = place
        elif module.partition(".")[0] not in _AGENT:
            other = place
        step = step.tb_next
    return own or other
