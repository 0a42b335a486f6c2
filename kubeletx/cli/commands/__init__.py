"""Subcommands of kubeletx, one file for each."""
