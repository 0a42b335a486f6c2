"""Exit codes of kubeletx. ``kubeletx exec`` returns the exit code of the command in the container instead."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of kubeletx and its subcommands. Scripts may rely on them: their meaning never changes."""

    OK = 0
    FAILED = 1
    """The agent refused, an object was not found, or no agent answered; the same code as in kubectl and crictl."""
    USAGE = 2
    """A flag, an argument or the configuration is wrong: a retry will not help."""
    STALLED = 3
    """A plugin blocked the agent for too long; the agent's next start runs it in a process of its own."""
    UNCLEAN = 4
    """The agent did not end by itself within ``kubeletx.stopTimeout`` after SIGTERM, and was ended."""
    INTERRUPTED = 130
    """Ctrl-C."""
