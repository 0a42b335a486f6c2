"""Plugins of the agent: `loading` finds and loads them, `reload` loads new ones while the agent runs.

`registrations` is the table of what plugins register other than runtimes, such as health checks. The other modules
implement these registrations. They are imported only if there are any (see `services`), to save memory.
"""

from .candidates import LoadedPlugin
from .foreign import load_agent_plugins
from .loading import Plugins, load_plugins, log_plugins
from .reload import RunningPlugins

__all__ = ["LoadedPlugin", "Plugins", "RunningPlugins", "load_agent_plugins", "load_plugins", "log_plugins"]
