"""Factories of the agent's parts, one file for each."""
