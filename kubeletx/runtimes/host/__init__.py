"""`RuntimeHost`, the object that a runtime's plugin gets from the agent, and helpers to run programs and to wait."""
