"""Writes the reference of the command line; it is built by a command, and not kept."""
