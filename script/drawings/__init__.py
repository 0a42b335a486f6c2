"""Drawings of the states that exist as data in the code, for docs/states.md."""
