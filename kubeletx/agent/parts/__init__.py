"""Factories of the agent's components, one file for each; see `part` for the type `Part`."""
