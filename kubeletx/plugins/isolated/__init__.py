"""Runs what plugins of other projects register beside runtimes, such as health checks, in processes of their own.

    HealthChecks ─▶ IsolatedCheck ─▶ PluginProcess ══ socket pairs ══ child ─▶ the plugin's HealthCheck

There is one child for each distribution: its plugins share modules, as they do in the agent's process, and one
interpreter needs about 35 MiB. It is started by the first call, and again, with growing delays, by the first call after
its end. The socket pair, frames and handshake are those of isolated runtimes (`kubeletx.runtimes.isolation`).

The child imports this package too, so it imports nothing here.
"""
