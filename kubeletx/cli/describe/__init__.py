"""Descriptions of pods, the node and runtimes."""
