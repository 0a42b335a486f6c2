"""Plugins: found and loaded (`loading`), what they registered (`registrations`), new ones while the agent
runs (`reload`), and how the host calls them.

These three are imported by every agent. The rest is imported only when a plugin registers something beside runtimes
(see `rooms`), so that an agent without such plugins is not larger.
"""

from .loading import LoadedPlugin, Plugins, load_plugins, log_plugins
from .reload import RunningPlugins

__all__ = ["LoadedPlugin", "Plugins", "RunningPlugins", "load_plugins", "log_plugins"]
