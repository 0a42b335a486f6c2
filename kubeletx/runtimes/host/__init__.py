"""The host's side of the seam: what a runtime's plugin gets from the agent."""
