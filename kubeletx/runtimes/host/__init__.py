"""The host's side of the plugin interface: what a runtime's plugin gets from the agent."""
