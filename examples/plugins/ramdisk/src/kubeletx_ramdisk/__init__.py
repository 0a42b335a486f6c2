"""Volumes in memory: an example volume driver for kubeletx."""
