"""One verb, one file: how each action is carried out. Steps do I/O and return a `Result`; they never plan."""

from .dispatch import carry_out, failed

__all__ = ["carry_out", "failed"]
