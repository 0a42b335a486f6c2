"""Writes docs/api.md, the reference of kubeletx.api, from its docstrings."""
