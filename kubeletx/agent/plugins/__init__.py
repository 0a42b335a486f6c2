"""Plugins: found and loaded (`loading`), their registrations (`registrations`), and `reload` of new ones.

Every agent imports these three. The rest is imported only if a plugin registers something besides runtimes (see
`rooms`), so that an agent without such plugins is not larger.
"""

from .loading import LoadedPlugin, Plugins, load_plugins, log_plugins
from .reload import RunningPlugins

__all__ = ["LoadedPlugin", "Plugins", "RunningPlugins", "load_plugins", "log_plugins"]
