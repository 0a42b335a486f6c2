"""Writes the reference of kubeletx.api, one page of Markdown, from its docstrings."""
