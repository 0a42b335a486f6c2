"""Hides secrets in objects that are shown to others: environment values, HTTP headers, user data, passwords. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from .types.core import Pod

HIDDEN: Final = "<hidden>"
_VALUE_LISTS: Final = ("env", "httpHeaders")
_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|(?:tokens?|secret|credentials?)$|(?:api|access|private|secret)[_-]?key$"
    r"|^(?:cloudInit)?userData|/vm-(?:user|meta)-data|^kubectl.kubernetes.io/last-applied-configuration$",
    re.IGNORECASE,
)
_PASSWORD_OF_URL: Final = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]+(?=@)")


def masked(value: Any, name: str = "") -> Any:
    """Return plain values, as of JSON, with `HIDDEN` in place of secrets. `name`: key of the value in a map."""
    if isinstance(value, dict):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple) and name in _VALUE_LISTS:
        return [{**item, "value": HIDDEN} if "value" in item else item for item in value]
    if isinstance(value, list | tuple):
        return [masked(item, name) for item in value]
    if not isinstance(value, str):
        return value
    return HIDDEN if value and _SECRET_NAME.search(name) else masked_text(value)


def masked_text(text: str) -> str:
    """Return the text with user and password in its URLs hidden."""
    return _PASSWORD_OF_URL.sub(HIDDEN, text)


def masked_pod(pod: Pod) -> Pod:
    """Return the pod without values of environment variables and HTTP headers, user data, and copies of its manifest."""
    return msgspec.convert(masked(msgspec.to_builtins(pod)), Pod)
