"""Exit codes of the command line. They never change meaning; ``exec`` passes on the command's own code."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of commands, for scripts. They never change meaning."""

    OK = 0
    FAILED = 1
    """The agent refused, something was not found, or no agent answered; the same code as kubectl's and crictl's."""
    USAGE = 2
    """A flag, an argument or the configuration is wrong: a retry will not help."""
    INTERRUPTED = 130
    """Ctrl-C."""
