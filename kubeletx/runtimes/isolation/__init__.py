"""``isolation=process``: a runtime's plugin in a process of its own (DECISIONS 16).

    RuntimeHandle ─▶ IsolatedRuntime ─▶ Peer ══ socket pair ══ Peer ─▶ the plugin's Runtime
                          │                                       │
                          └── starts, watches, restarts ──────────┘ child process

The same class runs under the same contract; blocking or crashing code costs this runtime alone.
"""

from .proxy import IsolatedRuntime

__all__ = ["IsolatedRuntime"]
