"""One verb, one file: how each action is carried out. Steps do I/O and return a `Change`; they never plan."""

from .dispatch import carry_out

__all__ = ["carry_out"]
