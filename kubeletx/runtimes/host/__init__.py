"""The agent's side of the plugin interface: the object that a runtime's plugin gets from the agent."""
