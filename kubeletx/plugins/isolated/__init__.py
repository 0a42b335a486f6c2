"""Runs what plugins of other projects register in addition to runtimes, such as health checks, in processes of their own.

    HealthChecks ─▶ Callbacks ─▶ PluginProcess ─▶ Peer ══ socket pair ══ Peer ─▶ Guarded ─▶ the plugin's HealthCheck

There is one child for each distribution: its plugins share modules, as they do in the agent's process, and one
interpreter needs about 35 MiB. It is started by the first call, and again, with growing delays, by the first call after
its end. The child program, the table of objects that it serves, and the proxies that call them are those of isolated
runtimes (`kubeletx.runtimes.isolation`).

The child imports this package too, so it imports nothing here.
"""
