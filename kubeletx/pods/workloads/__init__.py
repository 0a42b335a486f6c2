"""Workloads: rules of machines and of pods that can be frozen, where they differ from plain containers.

Each has a folder; `table` lists them.
"""
