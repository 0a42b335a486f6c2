"""Workloads with other rules than plain containers: virtual machines, and pods that can be frozen.

Each kind has its own folder; `table` lists them.
"""
