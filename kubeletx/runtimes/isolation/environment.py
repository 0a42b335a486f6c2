"""Environment variables of child processes: a short list, not all of the agent's, which may have secrets of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

NAMES: Final = frozenset(
    {
        *("PATH", "HOME", "LANG", "TZ", "TMPDIR"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        "GRPC_ENABLE_FORK_SUPPORT",  # set by the agent itself at its start
    }
)
PREFIXES: Final = ("KUBELETX_", "LC_", "PYTHON")
"""Prefixes of further names; those of Python let the child import what the agent imports."""


def child_environment(own: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """Return the environment of a child process. `own`: of the agent. `more`: further names that the child gets."""
    return {
        name: value
        for name, value in own.items()
        if name in NAMES or name in more or name.startswith(PREFIXES)
    }
