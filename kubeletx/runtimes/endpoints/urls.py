"""Endpoint URLs: makes ``unix`` URLs of paths, and splits off the URL parameters that are for the agent."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from kubeletx.api import InvalidConfig

HOST_PARAMETERS = ("plugin", "isolation")
ISOLATIONS = ("none", "process")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")


class SplitUrl(NamedTuple):
    """A URL, and the values of the agent's own parameters that were removed from it.

    `plugin`: value of ``plugin=``; empty if not given. `isolation`: value of ``isolation=``; empty if not given.
    `names`: names of the parameters that remain in `url`, in order.
    """

    url: str
    plugin: str
    isolation: str
    names: tuple[str, ...]


def is_bare(text: str) -> bool:
    """Return True if the text begins with a URL scheme or ``/``, so that it has no type and name before the URL."""
    return text.startswith("/") or _SCHEME.match(text) is not None


def normal(text: str, field: str) -> str:
    """Return the URL in the form that plugins get: a path becomes a ``unix`` URL, ``%3B`` becomes a semicolon.

    `field`: where the text was written, for messages. Raises InvalidConfig if `text` is neither a URL nor an absolute
    path, or has a comma before its parameters.
    """
    text = text.strip().replace("%3B", ";").replace("%3b", ";")
    if not is_bare(text):
        raise InvalidConfig(
            field=field,
            problem=f"{text!r} is not a URL" if text else "the URL is empty",
            fix="write SCHEME://..., such as unix:///run/containerd/containerd.sock, or an absolute path",
        )
    _refuse_comma(text, field)
    if text.startswith("/"):
        return f"unix://{text}"
    scheme, _, rest = text.partition("://")
    return f"{scheme.lower()}://{rest}"


def _refuse_comma(text: str, field: str) -> None:
    """Raise InvalidConfig for a comma before the parameters.

    gRPC splits every address at commas and connects to one of the parts (core, sockaddr_resolver.cc).
    """
    if "," in text.partition("?")[0]:
        raise InvalidConfig(
            field=field,
            problem=f"{text!r} holds a comma, which would make it a list of addresses",
            fix="give each runtime an item of its own (TYPE:NAME:URL;TYPE:NAME:URL) and a path without a comma",
        )


def split(url: str, field: str) -> SplitUrl:
    """Split ``plugin=`` and ``isolation=`` off the URL's query.

    Raises InvalidConfig if one of them is repeated or the isolation is unknown.
    """
    base, mark, query = url.partition("?")
    parameters: dict[str, str] = {}
    kept: list[str] = []
    names: list[str] = []
    for part in query.split("&") if mark else ():
        name, _, value = part.partition("=")
        if name in HOST_PARAMETERS:
            if name in parameters:
                raise InvalidConfig(field=field, problem=f"{name}= is given twice in the URL", fix="keep one")
            parameters[name] = unquote(value)
        else:
            kept.append(part)
            if name:
                names.append(unquote(name))
    isolation = parameters.get("isolation", "")
    if "isolation" in parameters and isolation not in ISOLATIONS:
        raise InvalidConfig(
            field=field,
            problem=f"isolation={isolation} is unknown",
            fix=f"use one of: {', '.join(ISOLATIONS)}",
        )
    query = "&".join(kept)
    return SplitUrl(
        f"{base}?{query}" if query else base, parameters.get("plugin", ""), isolation, tuple(names)
    )


def join(url: str, *, plugin: str = "", isolation: str = "") -> str:
    """Return the URL as it is written in an endpoint flag; the inverse of `normal` followed by `split`."""
    extra = [f"plugin={quote(plugin, safe='')}"] if plugin else []
    if isolation:
        extra.append(f"isolation={isolation}")
    if extra:
        url += ("&" if "?" in url else "?") + "&".join(extra)
    return url.replace(";", "%3B")
