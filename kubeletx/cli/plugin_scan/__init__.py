"""Loads the installed plugins in a short-lived process, for commands that show them while no agent runs."""
