"""Drawings of the states that the code has as data, for docs/states.md."""
