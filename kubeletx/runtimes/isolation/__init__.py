"""``isolation=process``: runs the plugin of a runtime in a process of its own (DECISIONS 16).

    RuntimeHandle ─▶ IsolatedRuntime ─▶ Peer ══ socket pair ══ Peer ─▶ the plugin's Runtime
                          │                                       │
                          └── starts, watches, restarts ──────────┘ child process

Both ends serve tables of objects (`Served`); proxies are made from their protocols (`remote_class`). The child program is
the same for runtimes and for what other hooks register (`kubeletx.plugins.isolated`).

The plugin's class is the same as without isolation. Plugin code that blocks or crashes affects only this runtime.
"""

from .proxy import IsolatedRuntime

__all__ = ["IsolatedRuntime"]
