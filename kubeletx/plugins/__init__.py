"""Plugins: `loading` finds and loads them, `reload` loads new ones while the agent runs.

`registrations` is the table of what plugins register other than runtimes, such as health checks. The other modules
implement these registrations. They are imported only if there are any (see `services`), to save memory.
"""
