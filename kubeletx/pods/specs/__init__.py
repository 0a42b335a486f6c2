"""Converts a Pod to the `SandboxSpec` and `UnitSpec` that runtimes get. Pure, except that it reads host files."""
