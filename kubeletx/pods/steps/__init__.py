"""Steps: the code that carries out each action, one file for each verb.

A step does I/O and returns a `Result`; it plans nothing.
"""

from .dispatch import carry_out, failed

__all__ = ["carry_out", "failed"]
