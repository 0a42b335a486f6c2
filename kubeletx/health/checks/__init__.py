"""Checks of the node: kinds, their settings, and the settled result of each."""
